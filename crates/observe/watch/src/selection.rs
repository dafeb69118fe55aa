//! Which connections are watched, and which process each belongs to.

use crate::caveats;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_bpf::tcp_owner::{Owner, OwnerEvent};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::open_files::{Look, LookLimits};
use longhaul_kernel::process::{self, shown_name};
use longhaul_kernel::process_sockets::{self, SocketOwners};
use longhaul_kernel::sock_diag::InetFilter;
use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::WatchError;

/// The most opened connections that are remembered until they are seen.
const MOST_OWNERS: usize = 65_536;
/// So many times as long as a look at the files of all processes took is none made: users can have very many open.
const LOOKS_APART: u64 = 10;
/// A look at the files of the chosen processes that took less can be made with each sample.
const SHORT_LOOK: Nanos = Nanos::from_millis(10);
/// How often the control groups below the chosen one are listed.
const LIST_GROUPS_EVERY: Nanos = Nanos::from_secs(1);
/// One list has at most so many of them, and takes at most this long: who may make groups there can make very many, far below each other.
const MOST_GROUPS: usize = 4_096;
const LONGEST_LIST_OF_GROUPS: Nanos = Nanos::from_millis(200);

/// Which connections to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All connections.
    All,
    /// Connections with this port at either end.
    Port(u16),
    /// Connections of this process and its descendants.
    Process(u32),
    /// Connections of the descendants of the calling process.
    Descendants,
    /// Connections made in this control group (version 2) or one below.
    Cgroup(PathBuf),
}

/// What there is to decide by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) cookie: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// 0 if no process holds the socket, or after its end.
    pub(crate) inode: u32,
    pub(crate) cgroup_id: Option<u64>,
}

/// Decides whether to watch a connection or a socket.
#[derive(Debug)]
pub(crate) struct Chooser {
    selection: Selection,
    /// The common ancestor of the chosen processes.
    root: Option<u32>,
    /// It and its descendants, including those whose parents ended.
    processes: HashSet<u32>,
    /// Their PIDs, by the inode number of the socket.
    sockets: HashMap<u32, u32>,
    looked: Nanos,
    groups: HashSet<u64>,
    /// Some list did not have all groups.
    unread_groups: bool,
    /// By cookie: the process that opened or closed it, and when it began.
    owners: HashMap<u64, (Option<Owner>, Option<Nanos>)>,
    hidden_processes: u32,
    unowned: bool,
    /// The most processes that had more files than one look reads.
    unread_processes: u32,
    /// The process with which the next look at all begins.
    next: u32,
    /// Not before are the files of the chosen processes looked at again, or the groups below the chosen one listed.
    look_at: Nanos,
    /// Not before are the files of all processes looked at again.
    look_up_at: Nanos,
}

impl Chooser {
    pub(crate) fn new(selection: Selection) -> Result<Self, WatchError> {
        let root = match &selection {
            Selection::Process(pid) => {
                let mut look = Look::begin(LookLimits::default());
                process_sockets::of_process(*pid, &mut look)
                    .map_err(|source| WatchError::Process { pid: *pid, source })?;
                Some(*pid)
            }
            Selection::Descendants => Some(std::process::id()),
            _ => None,
        };
        let mut chooser = Self {
            selection,
            root,
            processes: HashSet::new(),
            sockets: HashMap::new(),
            looked: Nanos::ZERO,
            groups: HashSet::new(),
            unread_groups: false,
            owners: HashMap::new(),
            hidden_processes: 0,
            unowned: false,
            unread_processes: 0,
            next: 0,
            look_at: Nanos::ZERO,
            look_up_at: Nanos::ZERO,
        };
        if let Selection::Cgroup(path) = &chooser.selection {
            let path = path.clone();
            chooser
                .list_groups(&path)
                .map_err(|source| WatchError::Cgroup { path: path.display().to_string(), source })?;
        }
        Ok(chooser)
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The part of the selection that the kernel can apply.
    pub(crate) fn filter(&self) -> InetFilter {
        match self.selection {
            Selection::Port(port) => InetFilter::Port(port),
            Selection::Cgroup(_) if self.groups.len() == 1 => {
                self.groups.iter().next().map_or(InetFilter::All, |id| InetFilter::Cgroup(*id))
            }
            _ => InetFilter::All,
        }
    }

    /// Takes an event of a tracepoint.
    pub(crate) fn learn(&mut self, event: OwnerEvent) {
        if self.owners.len() >= MOST_OWNERS {
            // Most of them belong to connections that were not chosen.
            self.owners.clear();
        }
        let (owner, began) = self.owners.entry(event.cookie).or_default();
        if event.begins && began.is_none() {
            *began = Some(Nanos(event.at_ns));
        }
        if owner.is_none() {
            *owner = event.by;
        }
    }

    pub(crate) fn forget(&mut self, cookie: u64) {
        self.owners.remove(&cookie);
    }

    /// When the connection began, according to a tracepoint.
    pub(crate) fn began(&self, cookie: u64) -> Option<Nanos> {
        self.owners.get(&cookie).and_then(|(_, began)| *began)
    }

    /// Whether to watch a connection.
    pub(crate) fn chooses(&mut self, now: Nanos, seen: &Candidate) -> bool {
        match &self.selection {
            Selection::All => true,
            Selection::Port(port) => [seen.local.port(), seen.remote.port()].contains(port),
            Selection::Cgroup(path) => {
                if now.saturating_sub(self.looked) >= LIST_GROUPS_EVERY && now >= self.look_at {
                    self.looked = now;
                    let path = path.clone();
                    // Where the chosen group is gone, the last list stays.
                    let _ = self.list_groups(&path);
                }
                let opener = self.owners.get(&seen.cookie).and_then(|(owner, _)| Some(owner.as_ref()?.cgroup_id));
                seen.cgroup_id.or(opener).is_some_and(|id| self.groups.contains(&id))
            }
            Selection::Process(_) | Selection::Descendants => self.belongs(now, seen),
        }
    }

    /// Lists the groups below the one at `path`.
    fn list_groups(&mut self, path: &Path) -> io::Result<()> {
        let began = monotonic();
        let look = Look::begin(LookLimits::default());
        let listed = groups(path, MOST_GROUPS, began.saturating_add(LONGEST_LIST_OF_GROUPS), || look.was_stopped());
        let now = monotonic();
        self.look_at = after(now, now.saturating_sub(began));
        let (groups, are_all) = listed?;
        // A list that a signal ended has less than the last one.
        if !look.was_stopped() || self.groups.is_empty() {
            self.groups = groups;
            self.unread_groups |= !are_all;
        }
        Ok(())
    }

    fn belongs(&mut self, now: Nanos, seen: &Candidate) -> bool {
        let Some(root) = self.root else { return false };
        if let Some((Some(owner), _)) = self.owners.get(&seen.cookie)
            && (owner.pid == root || owner.ancestors.contains(&root) || self.processes.contains(&owner.pid))
        {
            return true;
        }
        if seen.inode == 0 {
            return false;
        }
        if !self.sockets.contains_key(&seen.inode) && self.looked != now && now >= self.look_at {
            self.looked = now;
            self.look();
        }
        self.sockets.contains_key(&seen.inode)
    }

    /// Lists the chosen processes and their sockets.
    fn look(&mut self) {
        let Some(root) = self.root else { return };
        let began = monotonic();
        self.processes.extend(process_sockets::descendants(root));
        if self.selection != Selection::Descendants {
            self.processes.insert(root);
        }
        self.sockets.clear();
        let sockets = &mut self.sockets;
        let (mut look, mut unread) = (Look::begin(LookLimits::default()), 0);
        self.processes.retain(|pid| match process_sockets::of_process(*pid, &mut look) {
            Ok(found) => {
                sockets.extend(found.inodes.into_iter().map(|inode| (inode, *pid)));
                unread += u32::from(!found.are_all);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        });
        if !look.was_stopped() {
            self.unread_processes = self.unread_processes.max(unread);
        }
        let now = monotonic();
        let took = now.saturating_sub(began);
        self.look_at = if took < SHORT_LOOK { Nanos::ZERO } else { after(now, took) };
    }

    /// The process of a connection, if it is known already: PID and name.
    pub(crate) fn owner(&self, seen: &Candidate) -> Option<(u32, String)> {
        if let Some((Some(owner), _)) = self.owners.get(&seen.cookie) {
            // Read the name again: a program that a shell starts has the shell's name at first.
            let name = process::name(owner.pid).unwrap_or_else(|| shown_name(owner.name.as_bytes()));
            return Some((owner.pid, name));
        }
        let pid = *self.sockets.get(&seen.inode)?;
        Some((pid, process::name(pid)?))
    }

    /// The next [`Self::look_up`] is made, however long the last one took: it is the last.
    pub(crate) fn look_at_once(&mut self) {
        self.look_up_at = Nanos::ZERO;
    }

    /// PID and name of every socket's process, by inode number. Empty where the last look took so long that it is too early for another.
    pub(crate) fn look_up(&mut self) -> HashMap<u32, (u32, String)> {
        let began = monotonic();
        if began < self.look_up_at {
            return HashMap::new();
        }
        let by_inode = if self.root.is_some() {
            self.look();
            self.sockets.clone()
        } else {
            let look = Look::begin(LookLimits::default());
            let found: SocketOwners = process_sockets::of_all(self.next, look).unwrap_or_default();
            self.hidden_processes = found.hidden_processes;
            self.unread_processes = self.unread_processes.max(found.unread_processes);
            self.next = found.next;
            found.by_inode
        };
        let mut names: HashMap<u32, String> = HashMap::new();
        let mut named = |pid: u32| names.entry(pid).or_insert_with(|| process::name(pid).unwrap_or_default()).clone();
        let owners = by_inode.into_iter().map(|(inode, pid)| (inode, (pid, named(pid)))).collect();
        self.unowned |= self.hidden_processes > 0;
        let now = monotonic();
        self.look_up_at = after(now, now.saturating_sub(began));
        owners
    }

    /// Whether the chosen processes have ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.selection, Selection::Process(pid) if !is_running(pid))
            && process_sockets::descendants(self.root.unwrap_or(0)).is_empty()
    }

    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let mut found = Vec::new();
        if self.unowned {
            let message = format!(
                "{} processes of other users are hidden, so some connections have no program",
                self.hidden_processes
            );
            found.push(Caveat::new(caveats::PROCESSES_HIDDEN, message, "run as root"));
        }
        if self.unread_processes > 0 {
            let message = format!(
                "the open files of {} processes were not all read at once, as there are so many: some connections may \
                 have no program or not be shown",
                self.unread_processes
            );
            let remedy = "watch for a longer time, or end the programs that have so many files open (ls /proc/PID/fd)";
            found.push(Caveat::new(caveats::FILES_UNREAD, message, remedy));
        }
        if self.unread_groups {
            let message = "there are so many control groups below the chosen one that not all were read: connections \
                           of the others are not shown";
            let remedy = "choose a group further below, or remove groups that are not used";
            found.push(Caveat::new(caveats::GROUPS_UNREAD, message, remedy));
        }
        found
    }
}

/// When the next look may be made after one that took `took` and ended at `now`.
pub(crate) fn after(now: Nanos, took: Nanos) -> Nanos {
    now.saturating_add(Nanos(took.0.saturating_mul(LOOKS_APART)))
}

/// Whether a process runs: it exists and is no zombie.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may contain brackets too.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The ids of a control group and of those below: the inode numbers of their folders. At most `most` of them, and until `until` or a stop; those next to
/// the chosen one first. Also whether these are all.
fn groups(path: &Path, most: usize, until: Nanos, was_stopped: impl Fn() -> bool) -> io::Result<(HashSet<u64>, bool)> {
    let events = path.join("cgroup.controllers");
    fs::metadata(&events).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("not a control group of version 2"),
        _ => error,
    })?;
    let mut found = HashSet::new();
    let mut are_all = true;
    let mut open = VecDeque::from([path.to_owned()]);
    while let Some(folder) = open.pop_front() {
        // A group may vanish while they are listed.
        let Ok(metadata) = fs::metadata(&folder) else { continue };
        found.insert(metadata.ino());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if was_stopped() || monotonic() >= until {
                return Ok((found, false));
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if found.len() + open.len() >= most {
                are_all = false;
                break;
            }
            open.push_back(entry.path());
        }
    }
    Ok((found, are_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_does_not_run() {
        assert!(is_running(std::process::id()) && !is_running(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // It is a zombie until it is waited for.
        while is_running(pid) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!is_running(pid));
        child.wait().unwrap();
    }

    #[test]
    fn what_looks_did_not_read_is_a_caveat() {
        let mut chooser = Chooser::new(Selection::All).unwrap();
        assert!(chooser.caveats().is_empty());
        chooser.unread_processes = 2;
        let caveats = chooser.caveats();
        assert_eq!((caveats.len(), caveats[0].code.as_str()), (1, "files_unread"));
    }

    #[test]
    fn a_list_of_groups_ends_at_its_bounds() {
        // Folders stand for the groups: nothing else is read of them.
        let chosen = std::env::temp_dir().join(format!("longhaul-groups-{}", std::process::id()));
        for below in ["a/far/farther", "b/far", "c"] {
            fs::create_dir_all(chosen.join(below)).unwrap();
        }
        fs::write(chosen.join("cgroup.controllers"), "").unwrap();
        let id = |below: &str| fs::metadata(chosen.join(below)).unwrap().ino();
        let near = HashSet::from(["", "a", "b", "c"].map(id));
        let listed = |most, until, is_stopped: bool| groups(&chosen, most, until, || is_stopped).unwrap();
        let (all, some, late, stopped) = (
            listed(7, Nanos(u64::MAX), false),
            listed(4, Nanos(u64::MAX), false),
            listed(7, Nanos::ZERO, false),
            listed(7, Nanos(u64::MAX), true),
        );
        fs::remove_dir_all(&chosen).unwrap();
        assert_eq!((all.0.len(), all.1), (7, true));
        assert!(all.0.is_superset(&near));
        assert_eq!(some, (near, false));
        assert_eq!((late.0.len(), late.1), (1, false));
        assert_eq!(late, stopped);
    }

    #[test]
    fn groups_that_were_not_listed_are_a_caveat() {
        let mut chooser = Chooser::new(Selection::All).unwrap();
        chooser.unread_groups = true;
        let caveats = chooser.caveats();
        assert_eq!((caveats.len(), caveats[0].code.as_str()), (1, "groups_unread"));
    }

    #[test]
    fn a_folder_is_not_a_control_group() {
        let error = Chooser::new(Selection::Cgroup("/tmp".into())).unwrap_err().to_string();
        assert!(error.contains("/tmp: not a control group of version 2; name a folder"), "{error}");
        let error = Chooser::new(Selection::Process(u32::MAX)).unwrap_err().to_string();
        assert!(error.starts_with("process 4294967295: "), "{error}");
    }
}
