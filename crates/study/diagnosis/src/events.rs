//! What the counters of a host tell of the time of a test, apart from losses: what held its programs back, or its link.

use longhaul_terms::ChangedCounters;
use serde::{Deserialize, Serialize};

/// What happened at a host during a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct HostEvents {
    /// Time without a CPU as the quota of a control group was used up, summed over CPUs.
    pub throttled_ns: u64,
    /// Times that a control group met its limit of memory.
    pub memory_limit_hits: u64,
    /// Time in which TCP had more memory than `tcp_mem` lets it have without pressure, as seen during the test, or as counted when it was over
    /// (`TCPMemoryPressuresChrono`).
    pub tcp_memory_pressure_ns: u64,
    /// Packets or connections that connection tracking dropped.
    pub conntrack_drops: u64,
    /// Pause frames that arrived: the other end of the link stopped this host.
    pub pause_frames_received: u64,
    /// Pause frames sent: this host stopped the other end of its link.
    pub pause_frames_sent: u64,
    /// The CPU that was longest in softirq; `null` if that was not seen.
    pub softirq_cpu: Option<SoftirqCpu>,
    /// Time that a hypervisor gave to others, summed over CPUs.
    pub stolen_ns: u64,
    /// The time that was watched for that, summed over CPUs; 0 if it was not.
    pub all_cpus_ns: u64,
}

/// A machine that lacks more of its time than a tenth measures its hypervisor.
const STOLEN: f64 = 0.1;

/// A CPU that processes packets: in softirq, where the kernel receives them, passes them through its firewall and to TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SoftirqCpu {
    /// Its number.
    pub cpu: u32,
    /// Time in softirq.
    pub softirq_ns: u64,
    /// Time in which it was busy, softirq included.
    pub busy_ns: u64,
    /// The time that it was watched.
    pub watched_ns: u64,
}

impl SoftirqCpu {
    fn of(counters: &ChangedCounters) -> Option<Self> {
        let time = |key: &str| counters.get(key).and_then(|by| u64::try_from(*by).ok());
        let watched_ns = time("machine: cpu_watched_ns").filter(|ns| *ns > 0)?;
        let cpus = counters.keys().filter_map(|key| {
            let cpu = key.strip_prefix("machine, CPU ")?.strip_suffix(": softirq_ns")?.parse().ok()?;
            let (softirq_ns, busy_ns) = (time(key)?, time(&format!("machine, CPU {cpu}: busy_ns"))?);
            Some(Self { cpu, softirq_ns, busy_ns, watched_ns })
        });
        cpus.max_by_key(|cpu| cpu.softirq_ns)
    }
}

/// A queueing discipline that shapes, and held packets back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShapingQdisc {
    /// The interface.
    pub interface: String,
    /// What it is: `tbf`.
    pub kind: String,
    /// Times that a packet had to wait for its rate (`overlimits`).
    pub overlimits: u64,
    /// Bytes of packets that it let pass.
    pub passed_bytes: u64,
}

/// Queueing disciplines that shape (tc(8), "Shaping"), and count `overlimits` when they do.
const SHAPERS: [&str; 4] = ["cake", "hfsc", "htb", "tbf"];

impl ShapingQdisc {
    /// The one that held back packets most often, out of all counters that changed.
    pub(crate) fn of(counters: &ChangedCounters) -> Option<Self> {
        let number = |by: &i64| u64::try_from(*by).ok().filter(|by| *by > 0);
        let found = counters.iter().filter_map(|(key, by)| {
            let scope = key.strip_suffix(": overlimits")?;
            let (interface, qdisc) = scope.split_once(", qdisc ")?;
            let (kind, _) = qdisc.split_once(" at ").filter(|(kind, _)| SHAPERS.contains(kind))?;
            let passed_bytes = counters.get(&format!("{scope}: bytes")).and_then(number)?;
            Some(Self { interface: interface.into(), kind: kind.into(), overlimits: number(by)?, passed_bytes })
        });
        found.max_by_key(|qdisc| qdisc.overlimits)
    }
}

impl HostEvents {
    /// Out of all counters that changed.
    pub(crate) fn of(counters: &ChangedCounters) -> Self {
        let sum = |ends: &[&str]| {
            let wanted = |key: &str| ends.iter().any(|end| key.ends_with(end));
            let values = counters.iter().filter(|(key, _)| wanted(key)).map(|(_, by)| u64::try_from(*by).unwrap_or(0));
            values.fold(0, u64::saturating_add)
        };
        let cpus = counters.keys().filter(|key| key.ends_with(": busy_ns")).count();
        Self {
            throttled_ns: sum(&["control group: cpu.throttled_ns"]),
            memory_limit_hits: sum(&["control group: memory.limit_hits"]),
            // The kernel counts milliseconds, and only what is over.
            tcp_memory_pressure_ns: (sum(&["TcpExt.TCPMemoryPressuresChrono"]).saturating_mul(1_000_000))
                .max(sum(&["machine: tcp_memory_pressure_ns"])),
            conntrack_drops: sum(&["Conntrack.drop", "Conntrack.early_drop"]),
            pause_frames_received: sum(&[": pause_frames_received"]),
            pause_frames_sent: sum(&[": pause_frames_sent"]),
            softirq_cpu: SoftirqCpu::of(counters),
            stolen_ns: sum(&[": steal_ns"]),
            all_cpus_ns: sum(&["machine: cpu_watched_ns"]).saturating_mul(cpus as u64),
        }
    }

    /// With those of another test.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            throttled_ns: self.throttled_ns.saturating_add(other.throttled_ns),
            memory_limit_hits: self.memory_limit_hits.saturating_add(other.memory_limit_hits),
            tcp_memory_pressure_ns: self.tcp_memory_pressure_ns.saturating_add(other.tcp_memory_pressure_ns),
            conntrack_drops: self.conntrack_drops.saturating_add(other.conntrack_drops),
            pause_frames_received: self.pause_frames_received.saturating_add(other.pause_frames_received),
            pause_frames_sent: self.pause_frames_sent.saturating_add(other.pause_frames_sent),
            softirq_cpu: [self.softirq_cpu, other.softirq_cpu].into_iter().flatten().max_by_key(|cpu| cpu.softirq_ns),
            stolen_ns: self.stolen_ns.saturating_add(other.stolen_ns),
            all_cpus_ns: self.all_cpus_ns.saturating_add(other.all_cpus_ns),
        }
    }

    /// The share of the machine's CPU time that a hypervisor gave to others, if that spoils a test.
    pub(crate) fn stolen(self) -> Option<f64> {
        let share = self.stolen_ns as f64 / self.all_cpus_ns.max(1) as f64;
        (share >= STOLEN && self.all_cpus_ns > 0).then_some(share.min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_known_by_their_names() {
        let counters = ChangedCounters::from([
            ("control group: cpu.throttled_ns".into(), 5),
            ("host: TcpExt.TCPMemoryPressuresChrono".into(), 7),
            ("host: Conntrack.drop".into(), 3),
            ("host: Conntrack.early_drop".into(), 4),
            ("host: Conntrack.insert_failed".into(), 100),
            ("eth0: pause_frames_received".into(), 9),
            ("eth1: pause_frames_received".into(), -1),
        ]);
        let expected = HostEvents {
            throttled_ns: 5,
            tcp_memory_pressure_ns: 7_000_000,
            conntrack_drops: 7,
            pause_frames_received: 9,
            ..HostEvents::default()
        };
        assert_eq!(HostEvents::of(&counters), expected);
        let lasting = ChangedCounters::from([("machine: tcp_memory_pressure_ns".into(), 8_000_000)]);
        assert_eq!(HostEvents::of(&lasting).tcp_memory_pressure_ns, 8_000_000);
    }

    #[test]
    fn a_shaper_is_one_that_held_packets_back() {
        let counters = ChangedCounters::from([
            ("eth0, qdisc fq at 1:: overlimits".into(), 99),
            ("eth0, qdisc fq at 1:: bytes".into(), 99),
            ("eth0, qdisc tbf at root: overlimits".into(), 7),
            ("eth0, qdisc tbf at root: bytes".into(), 5_000),
            ("eth1, qdisc htb at root: overlimits".into(), 70),
            ("eth2, qdisc htb at root: bytes".into(), 5_000),
        ]);
        let tbf = ShapingQdisc { interface: "eth0".into(), kind: "tbf".into(), overlimits: 7, passed_bytes: 5_000 };
        assert_eq!(ShapingQdisc::of(&counters), Some(tbf));
        assert_eq!(ShapingQdisc::of(&ChangedCounters::new()), None);
    }

    #[test]
    fn the_cpu_that_was_longest_in_softirq() {
        let mut counters = ChangedCounters::from([
            ("machine: cpu_watched_ns".into(), 100),
            ("machine, CPU 0: softirq_ns".into(), 20),
            ("machine, CPU 0: busy_ns".into(), 90),
            ("machine, CPU 11: softirq_ns".into(), 60),
            ("machine, CPU 11: busy_ns".into(), 70),
            ("machine, CPU x: softirq_ns".into(), 99),
        ]);
        let seen = SoftirqCpu { cpu: 11, softirq_ns: 60, busy_ns: 70, watched_ns: 100 };
        assert_eq!(HostEvents::of(&counters).softirq_cpu, Some(seen));
        assert_eq!(HostEvents::of(&counters).stolen(), None);
        // Of two CPUs, which had 200 together.
        counters.insert("machine, CPU 0: steal_ns".into(), 50);
        assert_eq!(HostEvents::of(&counters).stolen(), Some(0.25));
        counters.insert("machine, CPU 0: steal_ns".into(), 19);
        assert_eq!(HostEvents::of(&counters).stolen(), None);
        counters.insert("machine: cpu_watched_ns".into(), 0);
        assert_eq!(HostEvents::of(&counters).softirq_cpu, None);
    }
}
