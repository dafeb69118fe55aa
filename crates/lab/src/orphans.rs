//! Programs of a lab whose process was killed: they keep its namespaces, and with them the addresses, alive.

use std::collections::HashSet;

use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::{NamespaceId, NetNamespace};
use longhaul_kernel::process;
use longhaul_units::Nanos;

/// How long they have to end.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// What the loopback interface's alias begins with in every host of a lab.
const MARK: &str = "longhaul lab ";

/// The alias by which the namespaces of lab `name` are known. Unlike a name or a number of a process, it lives exactly as
/// long as the namespace.
pub(crate) fn mark(name: &str) -> String {
    format!("{MARK}{name}")
}

/// A namespace that belonged to a lab.
#[derive(Debug)]
pub struct Orphan {
    /// The lab's name.
    pub lab: String,
    id: NamespaceId,
}

/// Namespaces of labs in which programs run, apart from those of living labs, which are given as `alive`.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn find(alive: &[NamespaceId]) -> std::io::Result<Vec<Orphan>> {
    let own = NetNamespace::current().ok().and_then(|namespace| namespace.id().ok());
    let mut seen: HashSet<NamespaceId> = alive.iter().copied().chain(own).collect();
    let mut orphans = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Processes come and go, and some are not ours to look at.
        let Ok(namespace) = NetNamespace::of_process(pid) else { continue };
        let Ok(id) = namespace.id() else { continue };
        if seen.insert(id)
            && let Ok(Some(lab)) = namespace.enter(marked_lab)
        {
            orphans.push(Orphan { lab, id });
        }
    }
    Ok(orphans)
}

impl Orphan {
    /// Ends the programs in it; the namespace goes with the last.
    ///
    /// # Errors
    /// Where one belongs to somebody else.
    pub fn end(&self) -> std::io::Result<usize> {
        let processes = process::in_namespace(self.id)?;
        let count = processes.len();
        process::end(processes, PATIENCE)?;
        Ok(count)
    }
}

/// The lab whose mark the current namespace bears.
fn marked_lab() -> Option<String> {
    let alias = Netlink::open().ok()?.link_by_name("lo").ok()?.alias?;
    Some(alias.strip_prefix(MARK)?.to_owned())
}
