//! What is changed on this host for a while: settings in files of `/proc/sys` and `/sys`, settings of a NIC's driver, a control group.
//!
//! Whatever happens to the process that changes them, all is as before in the end: a process of its own knows beforehand what is to be undone,
//! waits for the first one's end, by `SIGKILL` too, and undoes it. Only who kills that one as well (a whole control group) leaves the
//! change. What somebody else has set in a file meanwhile stays; a driver is told what it was told before, unless its interface is in another network
//! namespace by then. What cannot be undone is said on standard error, with what to do, and the rest is undone.
//!
//! Source: fork(2), signal-safety(7).

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_units::{Nanos, is_obeyed};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::clock::monotonic;
use crate::link::Netlink;
use crate::link_ioctl::{Question, ask, index_of, name};
use crate::namespace::NetNamespace;
use crate::stderr_text;
use crate::sysfs::{Sysfs, shown};
use crate::unix::listen_alone;
use crate::wait::sleep_until;

/// Something that shall change.
#[derive(Debug)]
pub struct Setting(What);

#[derive(Debug)]
enum What {
    File { file: File, path: PathBuf, before: Vec<u8>, wanted: String, set: Shared },
    Driver { link: String, index: u32, request: libc::Ioctl, before: Question, wanted: Vec<u32>, own: Own },
    Group { folder: PathBuf, folder_c: CString, processes_c: CString, leave_to: File },
}

impl Setting {
    /// The setting in the file at `path`, which holds `before` and shall hold `wanted` for a while.
    ///
    /// # Errors
    /// As open(2) has them: it cannot be written.
    pub fn open(path: PathBuf, before: impl Into<Vec<u8>>, wanted: impl Into<String>) -> io::Result<Self> {
        let open = |read| File::options().read(read).write(true).open(&path);
        // Some can be written alone: what they hold in the end is not known.
        let file = open(true).or_else(|_| open(false))?;
        Ok(Self(What::File { file, path, before: before.into(), wanted: wanted.into(), set: Shared::new()? }))
    }

    /// What the driver of `link` is told by `request`: `before` as it is now, and `wanted` for a while. Whatever the interface is called in the
    /// end, it is the one that is told. The command `by_hand` tells it `before` as well.
    ///
    /// # Errors
    /// There is no such link, or no socket to ask by.
    pub(crate) fn of_driver(
        link: &str,
        request: libc::Ioctl,
        before: &[u32],
        wanted: &[u32],
        by_hand: String,
    ) -> io::Result<Self> {
        let before = Question::new(link, request, before.to_vec())?;
        let index = before.index()?;
        let own = Own { file: own_file(link), by_hand };
        Ok(Self(What::Driver { link: link.into(), index, request, before, wanted: wanted.to_vec(), own }))
    }

    /// The control group `folder`, which there shall be for a while with this process in it. Its processes go to the group `leave_to` in the
    /// end.
    ///
    /// # Errors
    /// As open(2) has them: processes cannot be moved to `leave_to`.
    pub(crate) fn group(folder: &Path, leave_to: &Path) -> io::Result<Self> {
        let leave_to = File::options().write(true).open(leave_to.join(PROCESSES))?;
        let c = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
        let (folder_c, processes_c) = (c(folder)?, c(&folder.join(PROCESSES))?);
        Ok(Self(What::Group { folder: folder.to_owned(), folder_c, processes_c, leave_to }))
    }

    /// Changes it for good.
    ///
    /// # Errors
    /// The file that could not be written, and what the kernel said.
    pub fn keep(mut self) -> Result<(), (PathBuf, io::Error)> {
        self.change()
    }

    fn change(&mut self) -> Result<(), (PathBuf, io::Error)> {
        match &mut self.0 {
            What::File { file, path, wanted, .. } => {
                file.write_all(wanted.as_bytes()).map_err(|error| (path.clone(), error))
            }
            What::Driver { link, request, wanted, .. } => {
                ask(link, *request, wanted).map_err(|error| (PathBuf::from(link.as_str()), error))
            }
            What::Group { folder, .. } => {
                let entered = fs::create_dir(&folder).and_then(|()| fs::write(folder.join(PROCESSES), "0"));
                entered.map_err(|error| (folder.clone(), error))
            }
        }
    }

    /// Notes the value in its file after all settings are changed: one setting may change the value of another.
    fn note(&mut self) {
        if let What::File { file, set, .. } = &mut self.0 {
            set.fill(|text| file.read_at(text, 0).unwrap_or(0));
        }
    }

    /// The line that says what to do where it cannot be undone.
    fn by_hand(&self) -> String {
        let what = match &self.0 {
            What::File { path, before, .. } => {
                format!("cannot put back {}: write `{}` to it", shown(path), String::from_utf8_lossy(before))
            }
            What::Driver { link, own, .. } => {
                let by_hand = &own.by_hand;
                format!("cannot put back a setting of {link}: run `{by_hand}` in the network namespace where it is")
            }
            What::Group { folder, .. } => {
                format!("cannot remove the control group {}: end its processes, and rmdir it", folder.display())
            }
        };
        let shown: String = what.chars().map(|letter| if is_obeyed(letter) { ' ' } else { letter }).collect();
        format!("longhaul: {shown}\n")
    }

    /// How it is undone, and the descriptor that this takes.
    fn undo(&mut self) -> (RawFd, Undo<'_>) {
        match &mut self.0 {
            What::File { file, before, set, .. } => {
                (file.as_raw_fd(), Undo::Write { before, set, is_ours: Cell::new(true) })
            }
            What::Driver { index, before, own, .. } => {
                let (index, file) = (*index, own.file.as_ref().map(AsRawFd::as_raw_fd));
                let (socket, request, message) = before.parts();
                (socket, Undo::Tell { index, request, message, file })
            }
            What::Group { folder_c, processes_c, leave_to, .. } => {
                (leave_to.as_raw_fd(), Undo::Leave { folder: folder_c, processes: processes_c })
            }
        }
    }
}

/// What is known of an interface where its socket does not find it any more.
#[derive(Debug)]
struct Own {
    /// See [`own_file`]; `None` where there is no sysfs.
    file: Option<File>,
    by_hand: String,
}

/// A file of sysfs that can be read as long as the interface `link` is there, also when it has another name or is in another network namespace.
fn own_file(link: &str) -> Option<File> {
    let links = Netlink::open().ok()?.links().ok()?;
    File::open(Sysfs::of(&links).ok()?.interface(link).join("ifindex")).ok()
}

/// The file of a control group that names its processes, one a line (cgroups(7)).
pub(crate) const PROCESSES: &str = "cgroup.procs";

/// What the guard does in the end, with a descriptor.
#[derive(Debug)]
enum Undo<'a> {
    /// Writes `before` to the file, unless it holds another text than it had when it was `set`: that is somebody else's.
    Write { before: &'a [u8], set: &'a Shared, is_ours: Cell<bool> },
    /// Tells the driver of the interface `index` by the socket. Where that does not find it, `file` says whether it is gone.
    Tell { index: u32, request: libc::Ioctl, message: *mut libc::ifreq, file: Option<RawFd> },
    /// Moves the processes to the group whose list the descriptor is, and removes the folder.
    Leave { folder: &'a CStr, processes: &'a CStr },
}

impl Undo<'_> {
    /// The descriptor that it takes beside the one that comes with it.
    fn file(&self) -> Option<RawFd> {
        if let Self::Tell { file, .. } = self { *file } else { None }
    }
}

/// A text that a process and its guard share: the value of a setting as the kernel shows it afterwards, which may differ from the value written.
#[derive(Debug)]
struct Shared(NonNull<SharedText>);

#[derive(Debug)]
struct SharedText {
    /// 0: it was not set, or cannot be read.
    length: AtomicUsize,
    text: [u8; TEXT_MOST],
}

/// Texts of settings are shorter.
const TEXT_MOST: usize = 2048;

// SAFETY: the memory belongs to this alone, and goes with it.
unsafe impl Send for Shared {}
// SAFETY: what changes it takes it exclusively.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses a place that nothing else uses. All zeros are a text of no length.
        let place = unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<SharedText>(), protection, flags)? };
        NonNull::new(place.cast()).map(Self).ok_or_else(|| io::Error::other("mmap"))
    }

    /// Has `read` fill it, which returns the length.
    fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> usize) {
        // SAFETY: the memory is there as long as this is, and nobody else writes to it. The guard reads it when this process has let go or ended.
        let shared = unsafe { self.0.as_mut() };
        shared.length.store(0, Ordering::Release);
        let length = read(&mut shared.text);
        shared.length.store(length, Ordering::Release);
    }

    /// Whether `text` is it, or it is not known. It takes neither memory nor a lock.
    fn is(&self, text: &[u8]) -> bool {
        // SAFETY: as in `fill`.
        let shared = unsafe { self.0.as_ref() };
        let length = shared.length.load(Ordering::Acquire);
        length == 0 || shared.text.get(..length) == Some(text)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody uses it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<SharedText>()) };
    }
}

/// The right to change a setting, known by a name. In a network namespace one process has it at a time. Only processes of root and of the caller's
/// user count. Who does not get it at once tries for 100 ms more.
#[derive(Debug)]
pub struct Claim(UnixListener);

/// How long a claim is asked for. One that was let go may still be in a child that another thread has forked and that has not called exec yet.
const CLAIM_PATIENCE: Nanos = Nanos::from_millis(100);
/// How often.
const CLAIM_LOOK: Nanos = Nanos::from_millis(5);

impl Claim {
    /// The right to change the kernel parameter `key`.
    ///
    /// # Errors
    /// `AddrInUse` where another process of root's or of the caller's user has it.
    pub fn of_sysctl(key: &str) -> io::Result<Self> {
        Self::take(&format!("sysctl/{key}"))
    }

    /// The right to change how `interface` receives: features, rings, NAPI.
    ///
    /// # Errors
    /// As [`Self::of_sysctl`]; `ENODEV` where there is no such interface.
    pub fn of_receiving(interface: &str) -> io::Result<Self> {
        Self::of_interface("receive", interface)
    }

    /// The right to steer the packets of `interface`.
    pub(crate) fn of_rps(interface: &str) -> io::Result<Self> {
        Self::of_interface("rps", interface)
    }

    /// The right to change the time stamps of `interface`.
    pub(crate) fn of_stamps(interface: &str) -> io::Result<Self> {
        Self::of_interface("nic-stamps", interface)
    }

    /// The right to change which CPUs take the interrupts of `line`, which the machine has: it is that of all network namespaces. Who may not enter the
    /// first process' one has it in the caller's.
    pub(crate) fn of_interrupt(line: u32) -> io::Result<Self> {
        let take = || Self::take(&format!("irq/{line}"));
        let entered = NetNamespace::of_process(1).and_then(|first| first.enter(take));
        entered.unwrap_or_else(|_| take())
    }

    /// By its number: it may get another name while somebody has the right.
    fn of_interface(right: &str, interface: &str) -> io::Result<Self> {
        Self::take(&format!("{right}/{}", index_of(interface)?))
    }

    fn take(name: &str) -> io::Result<Self> {
        Self::take_within(name, CLAIM_PATIENCE)
    }

    fn take_within(name: &str, patience: Nanos) -> io::Result<Self> {
        let name = format!("longhaul/{name}");
        let until = monotonic() + patience;
        loop {
            match listen_alone(&name) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && monotonic() < until => {
                    sleep_until(monotonic() + CLAIM_LOOK);
                }
                taken => return taken.map(Self),
            }
        }
    }
}

/// Settings that are changed for as long as this lives; then they are as they were before.
#[derive(Debug)]
pub struct Changed {
    guard: Option<Guard>,
    settings: Vec<Setting>,
    /// So many of them are changed, the first ones: all of them, unless `apply` failed.
    changed: usize,
    /// The guard has copies, so that whoever gets a claim finds the settings of before.
    claims: Vec<Claim>,
}

impl Changed {
    /// Changes `settings`, which `claims` are about.
    ///
    /// # Errors
    /// The file that could not be written, or none where there is no process to guard them, and what the kernel said; then nothing is
    /// changed.
    pub fn apply(mut settings: Vec<Setting>, claims: Vec<Claim>) -> Result<Self, (Option<PathBuf>, io::Error)> {
        let guard = Guard::start(&mut settings, &claims).map_err(|error| (None, error))?;
        let mut changed = Self { guard: Some(guard), settings, changed: 0, claims };
        for setting in &mut changed.settings {
            setting.change().map_err(|(path, error)| (Some(path), error))?;
            changed.changed += 1;
            changed.guard.iter_mut().for_each(Guard::tell_changed);
        }
        changed.settings.iter_mut().for_each(Setting::note);
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // Before the claims go. Where somebody killed it, another one does its work.
        if self.guard.take().is_some_and(|mut guard| !guard.finish()) {
            match Guard::start(&mut self.settings, &self.claims) {
                Ok(mut guard) => (0..self.changed).for_each(|_| guard.tell_changed()),
                Err(_) => {
                    self.settings[..self.changed].iter().for_each(|setting| stderr_text!("{}", setting.by_hand()));
                }
            }
        }
    }
}

/// A process that puts settings back when this one lets go of it or ends, however it ends.
#[derive(Debug)]
struct Guard {
    /// It has a byte for each setting that is changed. Its other end says so when all copies of this one are closed.
    line: Option<PipeWriter>,
    pid: Pid,
}

impl Guard {
    /// It returns once signals to this process' group do not reach the guard any more: nothing may be changed before.
    fn start(settings: &mut [Setting], claims: &[Claim]) -> io::Result<Self> {
        let (end, line) = io::pipe()?;
        let (mut stands, ready) = io::pipe()?;
        // All memory that the new process needs is had before: behind fork(2) in a process with threads nothing may be.
        let by_hand: Vec<String> = settings.iter().map(Setting::by_hand).collect();
        let restore: Vec<(RawFd, Undo<'_>)> = settings.iter_mut().map(Setting::undo).collect();
        let files = restore.iter().flat_map(|(fd, undo)| [Some(*fd), undo.file()]).flatten();
        let mut keep: Vec<RawFd> = files.chain(claims.iter().map(|claim| claim.0.as_raw_fd())).collect();
        keep.extend([end.as_raw_fd(), libc::STDERR_FILENO]);
        let ready_fd = ready.as_raw_fd();
        keep.sort_unstable();
        // SAFETY: the child calls only what signal-safety(7) allows, takes no memory and no lock, and ends by `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => guard(end.as_raw_fd(), ready_fd, &keep, &restore, &by_hand),
            pid => {
                let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork"))?;
                let guard = Self { line: Some(line), pid };
                drop(ready);
                let gone = |_| io::Error::other("the process that puts settings back ended at once");
                stands.read_exact(&mut [0]).map_err(gone)?;
                Ok(guard)
            }
        }
    }

    /// One more setting is changed, in their order: it says so where that cannot be put back.
    fn tell_changed(&mut self) {
        if let Some(line) = &mut self.line {
            // One that was killed is not told.
            let _ = line.write_all(&[0]);
        }
    }

    /// Has it put the settings back. Whether it did so, or said what it could not.
    fn finish(&mut self) -> bool {
        if self.line.take().is_none() {
            return true;
        }
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                ended => {
                    return ended.is_ok_and(|ended| ended.is_some_and(|(_, status)| status.exit_status() == Some(0)));
                }
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The guard's life. It is in a session of its own, as the terminal's signals are not for it.
fn guard(end: RawFd, ready: RawFd, keep: &[RawFd], restore: &[(RawFd, Undo<'_>)], by_hand: &[String]) -> ! {
    // SAFETY: system calls on integers and on memory that lives through them; nothing else of the process is touched.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"lh-guard".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::write(ready, [0_u8].as_ptr().cast(), 1);
        let mut from: c_int = 0;
        for &fd in keep {
            if fd > from {
                libc::syscall(libc::SYS_close_range, from, fd - 1, 0);
            }
            from = fd + 1;
        }
        libc::syscall(libc::SYS_close_range, from, u32::MAX, 0);
        let (mut byte, mut changed) = (0_u8, 0_usize);
        loop {
            match libc::read(end, (&raw mut byte).cast(), 1) {
                1 => changed += 1,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                _ => break,
            }
        }
        // Before the first is undone: a driver that is told something may set others of them anew.
        for (fd, undo) in restore {
            if let Undo::Write { set, is_ours, .. } = undo {
                let mut now = [0_u8; TEXT_MOST];
                let count = libc::pread(*fd, now.as_mut_ptr().cast(), now.len(), 0);
                is_ours.set(count < 0 || set.is(&now[..count.max(0) as usize]));
            }
        }
        // A setting goes with its interface.
        let is_gone = || matches!(*libc::__errno_location(), libc::ENODEV | libc::ENOENT);
        for (number, ((fd, undo), by_hand)) in restore.iter().zip(by_hand).enumerate() {
            let is_undone = match undo {
                Undo::Write { before, is_ours, .. } => {
                    !is_ours.get() || libc::pwrite(*fd, before.as_ptr().cast(), before.len(), 0) >= 0 || is_gone()
                }
                // Another one may have its name.
                Undo::Tell { index, request, message, file } => {
                    if name(*fd, *index, *message) {
                        libc::ioctl(*fd, *request, *message) >= 0 || is_gone()
                    } else {
                        file.is_none_or(|file| libc::pread(file, (&raw mut byte).cast(), 1, 0) < 1)
                    }
                }
                Undo::Leave { folder, processes } => leave(*fd, folder, processes),
            };
            // What was not changed is as before.
            if !is_undone && number < changed {
                say(by_hand);
            }
        }
        libc::_exit(0)
    }
}

/// Writes `line` on standard error, if that takes it at once: nothing keeps the guard from its end.
fn say(line: &str) {
    let mut error = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: system calls on an integer, on one `pollfd` and on a text with its length.
    unsafe {
        if libc::poll(&raw mut error, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
    }
}

/// Rounds in which processes are moved out of a group: others may begin meanwhile, and one that was killed holds the group after its files
/// were closed, until it is gone.
const LEAVE_ROUNDS: usize = 10_000;
/// Between two rounds.
const LEAVE_PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Moves the processes that the file `processes` lists, by writing their numbers to `to`, and removes the group `folder`. Whether it is gone.
fn leave(to: RawFd, folder: &CStr, processes: &CStr) -> bool {
    let mut text = [0_u8; 4096];
    for _ in 0..LEAVE_ROUNDS {
        // SAFETY: system calls on integers, on strings that end with zero, and on an array of ours with its length.
        let count = unsafe {
            let list = libc::open(processes.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let count = libc::read(list, text.as_mut_ptr().cast(), text.len());
            libc::close(list);
            count
        };
        // What follows the last line break is a part of a number, and comes in the next round.
        for line in text[..count.max(0) as usize].split_inclusive(|byte| *byte == b'\n') {
            if line.ends_with(b"\n") {
                // SAFETY: a system call on an integer and on a part of the array. A process may have ended since.
                unsafe { libc::write(to, line.as_ptr().cast(), line.len()) };
            }
        }
        // SAFETY: a system call on a string that ends with zero; errno belongs to this thread.
        let error = unsafe { if libc::rmdir(folder.as_ptr()) == 0 { 0 } else { *libc::__errno_location() } };
        if error != libc::EBUSY {
            return matches!(error, 0 | libc::ENOENT);
        }
        // SAFETY: a system call on a constant; where it is cut short, the next round only comes earlier.
        unsafe { libc::nanosleep(&LEAVE_PAUSE, std::ptr::null_mut()) };
    }
    false
}

#[cfg(test)]
mod tests;
