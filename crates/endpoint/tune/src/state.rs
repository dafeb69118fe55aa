//! What is remembered on disk of the settings that were changed, so that they can be put back at any time: after the command ended, was killed,
//! or the machine was started again.
//!
//! There is one file for each network namespace, named by the namespace's cookie, which the first one has as 1 on each boot. It is written as a whole
//! and flushed to the disk before the first setting changes, and before each further one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use longhaul_kernel::links::{parent, refuse_link_of_another};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_kernel::sysctl;
use longhaul_units::read_text;
use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::lock::{Lock, NotLocked};
use crate::place::HostSetting;

/// Where states are kept.
pub const STATE_FOLDER: &str = "/var/lib/longhaul/tune";
/// Where drop-ins go.
const ETC: &str = "/etc";
/// Name and version of the state's form.
const SCHEMA: &str = "longhaul.tune.state/1";
/// The mode of that folder.
const FOLDER: u32 = 0o700;
/// Longest state that is read.
const MOST_BYTES: u64 = 1 << 20;

/// What was changed in one network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    schema: String,
    /// The boot in which settings were last changed.
    pub(crate) boot_id: String,
    /// When: `CLOCK_REALTIME`, since 1970.
    pub(crate) changed_at_realtime_ns: u64,
    /// The command that changed them: the number of its process.
    pub(crate) pid: u32,
    /// How many of the settings are changed: the next one may be, too. All of them when it is as long as the list.
    pub(crate) done: usize,
    /// Nobody waits any more for a word to keep them.
    pub(crate) confirmed: bool,
    /// They go into drop-ins when they are kept.
    pub(crate) persist: bool,
    /// The settings, in the order in which they are changed, and put back.
    pub(crate) settings: Vec<Saved>,
    /// The files that longhaul wrote, or was about to.
    pub(crate) drop_ins: Vec<DropIn>,
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) place: HostSetting,
    /// Its value before longhaul changed it first.
    pub(crate) before: String,
    /// The value that longhaul gave it last.
    pub(crate) given: String,
    /// All that it gave it, and what the kernel made of them. Any other is somebody else's.
    pub(crate) ours: Vec<String>,
}

/// A file that makes settings last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DropIn {
    pub(crate) path: PathBuf,
    /// What longhaul wrote, the last one last. Anything else is somebody else's.
    pub(crate) ours: Vec<String>,
}

impl State {
    pub(crate) fn new(boot_id: String) -> Self {
        Self {
            schema: SCHEMA.into(),
            boot_id,
            changed_at_realtime_ns: longhaul_kernel::clock::realtime().0,
            pid: std::process::id(),
            done: 0,
            confirmed: false,
            persist: false,
            settings: Vec::new(),
            drop_ins: Vec::new(),
        }
    }

    /// All settings were changed.
    pub(crate) fn is_complete(&self) -> bool {
        self.done >= self.settings.len()
    }
}

/// Where the state of the calling thread's network namespace is kept.
#[derive(Debug, Clone)]
pub struct Store {
    /// As it was named.
    pub(crate) folder: PathBuf,
    /// The folder itself, once it is locked.
    opened: Option<OpenFolder>,
    pub(crate) etc: PathBuf,
    /// The namespace is the machine's first one.
    pub(crate) is_first: bool,
    name: String,
    gives_up: fn() -> bool,
}

impl Store {
    /// The store in `folder`, mostly [`STATE_FOLDER`].
    ///
    /// # Errors
    /// [`TuneError::Namespace`].
    pub fn open(folder: &Path) -> Result<Self, TuneError> {
        let namespace = || {
            let own = NetNamespace::current()?;
            Ok((own.cookie()?, own.inode()?))
        };
        let (cookie, inode) = namespace().map_err(TuneError::Namespace)?;
        // Before Linux 5.14 there is no cookie.
        let name = if cookie == 0 { format!("net-inode-{inode}") } else { format!("net-{cookie}") };
        let gives_up = || false;
        Ok(Self { folder: folder.to_owned(), opened: None, etc: ETC.into(), is_first: cookie <= 1, name, gives_up })
    }

    /// With drop-ins below `folder` in place of `/etc`: for tests, which change no file of the machine.
    #[doc(hidden)]
    #[must_use]
    pub fn with_etc(self, folder: &Path) -> Self {
        Self { etc: folder.to_owned(), ..self }
    }

    /// Whoever waits for another process to be done with it asks this, and stops waiting where it says so. Whoever changes settings that somebody shall
    /// confirm asks before each, and changes no more.
    #[must_use]
    pub fn with_give_up(self, gives_up: fn() -> bool) -> Self {
        Self { gives_up, ..self }
    }

    pub(crate) fn gives_up(&self) -> bool {
        (self.gives_up)()
    }

    /// The folder of all states.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of the state.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }

    /// The same file, whatever has the folder's name by now.
    fn place(&self) -> PathBuf {
        let folder = self.opened.as_ref().map_or_else(|| self.folder.clone(), OpenFolder::path);
        folder.join(format!("{}.json", self.name))
    }

    fn failed(&self, source: io::Error) -> TuneError {
        TuneError::Store { path: self.file(), source }
    }

    /// Waits for others that change settings at this moment, and keeps them away. The state is read and written in the very folder that was
    /// locked.
    pub(crate) fn lock(&self) -> Result<(Self, Lock), TuneError> {
        let opened = self.open_folder().map_err(|source| self.failed(source))?;
        let lock = Lock::take(&opened, self.gives_up).map_err(|why| match why {
            NotLocked::Held(by) => TuneError::Busy { folder: self.folder.clone(), by },
            NotLocked::Failed(source) => self.failed(source),
        })?;
        remove_parts(&opened.path()).map_err(|source| self.failed(source))?;
        Ok((Self { opened: Some(opened), ..self.clone() }, lock))
    }

    /// Opens the folder, or makes it.
    fn open_folder(&self) -> io::Result<OpenFolder> {
        refuse_link_of_another(&self.folder)?;
        fs::create_dir_all(self.folder.parent().unwrap_or(Path::new("/")))?;
        match fs::DirBuilder::new().mode(FOLDER).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let opened = OpenFolder::open(&self.folder)?;
        let place = opened.path();
        let folder = fs::metadata(&place)?;
        // Who may write there could have settings put back to what he likes.
        let own = fs::metadata("/proc/self")?.uid();
        if folder.permissions().mode() & 0o022 != 0 || ![0, own].contains(&folder.uid()) {
            let why = format!("others may write to {}", self.folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        // A folder that a person named may have other things in it, and stays as it is.
        if self.folder == Path::new(STATE_FOLDER) && folder.permissions().mode() & 0o777 != FOLDER {
            fs::set_permissions(&place, fs::Permissions::from_mode(FOLDER))?;
        }
        Ok(opened)
    }

    /// The state; `None` where nothing is changed.
    pub(crate) fn load(&self) -> Result<Option<State>, TuneError> {
        let text = match read_text(&self.place(), MOST_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let broken = |why: String| TuneError::Broken { path: self.file(), why };
        let state: State = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if state.schema != SCHEMA {
            return Err(broken(format!("its form is not {SCHEMA}")));
        }
        match state.settings.iter().find(|saved| !saved.place.is_known()) {
            Some(saved) => Err(broken(format!("{} is nothing that longhaul sets", saved.place))),
            None => Ok(Some(state)),
        }
    }

    /// Writes the state, through to the disk.
    pub(crate) fn save(&self, state: &State) -> Result<(), TuneError> {
        let save = || {
            let text = serde_json::to_string_pretty(state)? + "\n";
            write_through(&self.place(), text.as_bytes(), PRIVATE)
        };
        save().map_err(|source| self.failed(source))
    }

    /// Removes the state: all is as it was.
    pub(crate) fn remove(&self) -> Result<(), TuneError> {
        let place = self.place();
        let gone = fs::remove_file(&place).and_then(|()| File::open(parent(&place))?.sync_all());
        gone.map_err(|source| self.failed(source))
    }
}

/// Removes what a command left that was killed while a state took the place of another. Who has the lock is the only one that writes.
fn remove_parts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(".net-") && name.ends_with(".part") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a whole file, and has it and its name on the disk.
pub(crate) fn write_through(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let new = NewFile::create(path, mode)?;
    io::Write::write_all(&mut new.file(), contents)?;
    new.finish()?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The name of this boot: random, and another one after each start of the machine.
pub(crate) fn boot_id() -> Result<String, TuneError> {
    sysctl::read("kernel.random.boot_id").map_err(|error| TuneError::Boot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// flock(2) takes a descriptor for reading, which others get of a folder that they may look into.
    #[test]
    fn nobody_else_can_hold_the_lock() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-lock-{}", std::process::id()));
        let store = Store::open(&folder.join("states")).unwrap();
        let mode = || fs::metadata(store.folder()).unwrap().permissions().mode() & 0o777;
        drop(store.lock().unwrap());
        assert_eq!(mode(), 0o700);
        fs::set_permissions(store.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        drop(store.lock().unwrap());
        assert_eq!(mode(), 0o755, "a folder that a person named");
        let theirs = File::open(store.folder()).unwrap();
        theirs.lock().unwrap();
        let (sender, taken) = std::sync::mpsc::channel();
        let mine = store.clone();
        std::thread::spawn(move || sender.send(mine.lock().map(drop)));
        let taken = taken.recv_timeout(std::time::Duration::from_secs(2));
        drop(theirs);
        assert!(matches!(taken, Ok(Ok(()))), "{taken:?}");
        // What is locked is for its owner alone.
        let (_, lock) = store.lock().unwrap();
        let names: Vec<_> = fs::read_dir(store.folder()).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(names.iter().map(|entry| entry.metadata().unwrap().mode() & 0o777).collect::<Vec<_>>(), [0o600]);
        drop(lock);
        assert_eq!(fs::read_dir(store.folder()).unwrap().count(), 0, "it ends with the lock");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Threads that take it in turns: the file comes and goes, and one alone has it.
    #[test]
    fn one_has_it_at_a_time() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let folder = std::env::temp_dir().join(format!("longhaul-tune-turns-{}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        let (inside, turns) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let _lock = store.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 40);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_waits_for_another_is_told_whom_for() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-busy-{}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        let held = store.lock().unwrap();
        let start = std::time::Instant::now();
        let error = store.clone().with_give_up(|| true).lock().unwrap_err();
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        let error = store.lock().unwrap_err();
        assert!(matches!(error, TuneError::Busy { .. }), "{error}");
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
        drop(held);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A link would have another file made, or locked.
    #[test]
    fn a_planted_lock_is_refused() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-planted-{}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        drop(store.lock().unwrap());
        let (target, lock) = (folder.join("target"), folder.join(".lock"));
        std::os::unix::fs::symlink(&target, &lock).unwrap();
        assert!(store.lock().is_err() && !target.exists());
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "").unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
        let error = store.lock().unwrap_err().to_string();
        assert!(error.contains("only its owner can use"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Who may rename it in its parent puts another one in its place.
    #[test]
    fn what_is_read_is_of_the_folder_that_was_locked() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-swapped-{}", std::process::id()));
        let store = Store::open(&folder.join("states")).unwrap();
        let (locked, lock) = store.lock().unwrap();
        fs::rename(folder.join("states"), folder.join("moved")).unwrap();
        fs::create_dir(folder.join("states")).unwrap();
        fs::write(store.file(), "planted").unwrap();
        assert!(store.load().is_err() && locked.load().unwrap().is_none());
        drop(lock);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The same while settings are put back.
    #[test]
    fn an_undo_ends_in_the_folder_that_it_locked() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-undo-{}", std::process::id()));
        let store = Store::open(&folder.join("states")).unwrap().with_etc(&folder.join("etc"));
        let drop_in = folder.join("etc/sysctl.d/99-zz-longhaul.conf");
        {
            fs::create_dir_all(folder.join("etc/sysctl.d")).unwrap();
            let (locked, _lock) = store.lock().unwrap();
            fs::write(&drop_in, "ours").unwrap();
            let mut state = State::new(boot_id().unwrap());
            state.drop_ins.push(DropIn { path: drop_in.clone(), ours: vec!["ours".into()] });
            locked.save(&state).unwrap();
        }
        let mut swap = || {
            fs::rename(folder.join("states"), folder.join("moved")).unwrap();
            fs::create_dir(folder.join("states")).unwrap();
            fs::write(store.file(), "planted").unwrap();
        };
        crate::undo(&store, &mut swap).unwrap();
        assert!(!drop_in.exists());
        assert_eq!(fs::read(store.file()).unwrap(), b"planted", "what is there now is another's");
        assert_eq!(fs::read_dir(folder.join("moved")).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_killed_command_was_writing_goes_with_the_next_lock() {
        let folder = std::env::temp_dir().join(format!("longhaul-tune-parts-{}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        drop(store.lock().unwrap());
        for name in [".net-1.json.7.part", "net-1.json", ".others.part"] {
            fs::write(folder.join(name), "{").unwrap();
        }
        drop(store.lock().unwrap());
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, [".lock", ".others.part", "net-1.json"], "the lock stays beside a state");
    }
}
