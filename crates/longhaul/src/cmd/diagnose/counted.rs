//! What a host counts while its connections are watched.

use longhaul_host::{GroupLimits, HostSnapshot};
use longhaul_kernel::counters::{Scope, Snapshot};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_terms::ChangedCounters;

/// A host at one moment: its settings and its counters, those of a process's namespace and control groups, or the caller's own.
#[derive(Debug)]
pub(super) struct Counted {
    process: Option<u32>,
    namespace: Option<NetNamespace>,
    counters: Snapshot,
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
        if let Some(process) = process {
            host.group_limits = GroupLimits::read_of(process);
        }
        Ok(Self { process, namespace, counters, host })
    }

    /// What changed since. A process that has ended has no control groups any more: what withheld its CPU or memory is not known then.
    pub(super) fn changes(&self) -> ChangedCounters {
        let now = match &self.namespace {
            Some(namespace) => namespace.enter(Snapshot::take).unwrap_or_else(|_| self.counters.clone()),
            None => Snapshot::take(),
        };
        let changes = now.since(&self.counters).into_iter().filter(|change| change.scope != Scope::ControlGroup);
        let mut changes: ChangedCounters =
            changes.map(|change| (format!("{}: {}", change.scope, change.name), change.by)).collect();
        let (before, groups) =
            (&self.host.group_limits, self.process.map_or_else(GroupLimits::read, GroupLimits::read_of));
        for (name, now, before) in [
            ("cpu.throttled_ns", groups.throttled_ns, before.throttled_ns),
            ("memory.limit_hits", groups.memory_limit_hits, before.memory_limit_hits),
        ] {
            let by = i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX);
            changes.insert(format!("{}: {name}", Scope::ControlGroup), by);
        }
        changes
    }
}
