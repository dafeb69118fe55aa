//! What a host counts while its connections are watched.

use longhaul_host::HostSnapshot;
use longhaul_kernel::counters::{Scope, Snapshot};
use longhaul_kernel::group_limits::ProcessGroups;
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::procfs::tcp_memory_pressure;
use longhaul_result::Caveat;
use longhaul_terms::ChangedCounters;

use crate::caveats;

/// A host at one moment: its settings and its counters, those of a process's namespace and control groups, or the caller's own.
#[derive(Debug)]
pub(super) struct Counted {
    groups: ProcessGroups,
    namespace: Option<NetNamespace>,
    counters: Snapshot,
    /// Whether TCP was short of memory.
    pressed: bool,
    /// The host's settings.
    pub(super) host: HostSnapshot,
}

impl Counted {
    /// Reads them.
    ///
    /// # Errors
    /// Where the namespace cannot be entered.
    pub(super) fn take(process: Option<u32>, namespace: Option<NetNamespace>) -> Result<Self, NamespaceError> {
        let read = || (HostSnapshot::take(), Snapshot::take());
        let (mut host, counters) = match &namespace {
            Some(namespace) => namespace.enter(read)?,
            None => read(),
        };
        let groups = ProcessGroups::of(&process.map_or_else(|| "self".into(), |process| process.to_string()));
        host.group_limits = groups.limits();
        Ok(Self { groups, namespace, counters, pressed: tcp_memory_pressure(), host })
    }

    /// Says that not all interfaces or their counters were read, where there are too many.
    pub(super) fn caveat(&self) -> Option<Caveat> {
        self.counters.is_cut.then(|| {
            let message = "the network namespace has more interfaces, queueing disciplines or counters of drivers than \
                           are read: losses that only the others count are unknown";
            Caveat::new(caveats::INTERFACES_UNREAD, message, "remove interfaces (ip link), and run it again")
        })
    }

    /// What changed since, also if the process has ended meanwhile.
    pub(super) fn changes(&self) -> ChangedCounters {
        let now = match &self.namespace {
            Some(namespace) => namespace.enter(Snapshot::take).unwrap_or_else(|_| self.counters.clone()),
            None => Snapshot::take(),
        };
        let changes = now.since(&self.counters).into_iter().filter(|change| change.scope != Scope::ControlGroup);
        let mut changes: ChangedCounters =
            changes.map(|change| (format!("{}: {}", change.scope, change.name), change.by)).collect();
        let (before, groups) = (&self.host.group_limits, self.groups.limits());
        for (name, now, before) in [
            ("cpu.throttled_ns", groups.throttled_ns, before.throttled_ns),
            ("memory.limit_hits", groups.memory_limit_hits, before.memory_limit_hits),
        ] {
            let by = i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX);
            changes.insert(format!("{}: {name}", Scope::ControlGroup), by);
        }
        // The kernel counts pressure when it is over: one that was there at both ends, and was not over, lasted.
        if self.pressed && tcp_memory_pressure() {
            let lasted = now.ended_at.saturating_sub(self.counters.ended_at);
            changes.insert("machine: tcp_memory_pressure_ns".into(), i64::try_from(lasted.0).unwrap_or(i64::MAX));
        }
        changes
    }
}
