//! Programs of a lab whose process was killed: they keep its namespaces and addresses alive.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::{NamespaceId, NetNamespace};

use crate::programs::{self, ProgramsError};

/// What the loopback interface's alias begins with in every host of a lab.
const MARK: &str = "longhaul lab ";

/// The alias by which the namespaces of lab `name`, which this process holds, are known. It lives exactly as long as the
/// namespace, and says whose it is: the process's number, when it started, as numbers are used again, and the PID namespace
/// in which it has that number.
pub(crate) fn mark(name: &str) -> String {
    let pid = std::process::id();
    format!("{MARK}{name} {pid} {} {}", started(pid).unwrap_or_default(), pid_namespace())
}

/// The inode of the caller's PID namespace; 0 where `/proc` is none of it.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// When process `pid` started, in the kernel's ticks since boot (proc_pid_stat(5), field 22); `None` where there is none, or
/// one that has ended and whose parent has not asked how.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    if ended { None } else { fields.nth(18)?.parse().ok() }
}

/// A namespace that belonged to a lab. It is not held: there may be many.
#[derive(Debug)]
pub struct Orphan {
    /// The lab's name.
    pub lab: String,
    id: NamespaceId,
}

/// Namespaces of this user's labs in which programs run though the process that held the lab has ended. Another user can give his own
/// namespace any mark. Of a lab of another PID namespace nobody here can say whether its process has ended: it is none of these.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn find() -> std::io::Result<Vec<Orphan>> {
    let own = NetNamespace::current().ok().and_then(|namespace| namespace.id().ok());
    let mut seen: HashSet<NamespaceId> = own.into_iter().collect();
    let mut orphans = Vec::new();
    for (namespace, id) in namespaces_of_processes()? {
        if seen.insert(id)
            && let Some(lab) = lab_that_left(&namespace)
        {
            orphans.push(Orphan { lab, id });
        }
    }
    Ok(orphans)
}

/// The network namespaces of all processes, one open at a time. Processes come and go, and some are not ours to look at.
fn namespaces_of_processes() -> std::io::Result<impl Iterator<Item = (NetNamespace, NamespaceId)>> {
    let opened = |entry: std::io::Result<std::fs::DirEntry>| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let namespace = NetNamespace::of_process(pid).ok()?;
        let id = namespace.id().ok()?;
        Some((namespace, id))
    };
    Ok(std::fs::read_dir("/proc")?.filter_map(opened))
}

/// The lab that has left `namespace`, if it was this user's.
fn lab_that_left(namespace: &NetNamespace) -> Option<String> {
    if namespace.is_callers() { namespace.enter(abandoned_lab).ok()? } else { None }
}

impl Orphan {
    /// Ends the programs in it, which takes 22 s at most, and says how many there were; the namespace goes with the last.
    ///
    /// # Errors
    /// Where one belongs to somebody else, or does not end.
    pub fn end(&self) -> Result<usize, ProgramsError> {
        let is_it = |(namespace, id): &(NetNamespace, NamespaceId)| {
            *id == self.id && lab_that_left(namespace).is_some_and(|lab| lab == self.lab)
        };
        // It may have gone since, and its number be that of the next namespace that somebody made. As long as it is held, it is not.
        let Some((_held, id)) = namespaces_of_processes()?.find(is_it) else { return Ok(0) };
        programs::end(&[id])
    }
}

/// The lab whose mark the current namespace bears, where its process has ended.
fn abandoned_lab() -> Option<String> {
    let alias = Netlink::open().ok()?.link_by_name("lo").ok()?.alias?;
    let [name, pid, start, within] = alias.strip_prefix(MARK)?.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (pid, start, within): (u32, u64, u64) = (pid.parse().ok()?, start.parse().ok()?, within.parse().ok()?);
    (within == pid_namespace() && started(pid) != Some(start)).then(|| name.to_owned())
}
