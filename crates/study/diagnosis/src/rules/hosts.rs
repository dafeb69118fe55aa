//! What holds a program back at its host, beside buffers and the load of its CPU: control groups, memory for TCP, connection tracking, pauses
//! of its link.

use longhaul_result::Location;
use longhaul_units::Bytes;

use super::{Known, WORTH_NAMING, measured};
use crate::diagnosis::{Bound, Cause, Code, Finding, Line, Remedy, Role};
use crate::events::HostEvents;
use crate::evidence::{CpuFacts, HostFacts, TcpFacts, UdpFacts};

/// From this part on a table of connections deserves attention: at its end new connections are dropped. It is chosen.
const NEARLY_FULL: f64 = 0.9;

fn ends<'a>(known: &Known<'a>, run: &TcpFacts) -> [(Role, &'a HostFacts, HostEvents); 2] {
    [
        (Role::Sender, &known.evidence.sender, run.sender_events),
        (Role::Receiver, &known.evidence.receiver, run.receiver_events),
    ]
}

/// Without its quota a thread that has no CPU for so long could do 1.3 times as much.
const TOO_LONG: f64 = 1.0 - 1.0 / WORTH_NAMING;

/// The share of the time in which a thread had no CPU as its control group had used up its quota.
fn withheld(events: HostEvents, cpu: CpuFacts) -> Option<f64> {
    (cpu.elapsed_ns > 0).then(|| events.throttled_ns.min(cpu.run_delay_ns) as f64 / cpu.elapsed_ns as f64)
}

/// Whether a quota kept the test itself from its CPU: then it tells of that, and not of the path.
pub(super) fn is_void(run: &UdpFacts) -> bool {
    let ends = [(run.sender_events, run.sender_cpu), (run.receiver_events, run.receiver_cpu)];
    ends.into_iter().any(|(events, cpu)| cpu.and_then(|cpu| withheld(events, cpu)).is_some_and(|it| it >= TOO_LONG))
}

/// The quota of a control group kept a thread from its CPU for so long that the flow could carry 1.3 times as much without.
///
/// A thread that waits for its group's next period counts as ready to run (`run_delay`). Both are asked for: the group's time is that of all
/// its threads.
pub(super) fn throttled(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    let cpus = [run.sender_cpu, run.receiver_cpu];
    ends(known, run).into_iter().zip(cpus).find_map(|((role, host, events), cpu)| {
        let withheld = withheld(events, cpu?).filter(|share| *share >= TOO_LONG)?;
        let (allowed, folder) = match &host.cpu_limit {
            Some(limit) => (
                format!(" of {:.2} CPUs", limit.quota_us as f64 / limit.period_us.max(1) as f64),
                limit.folder.as_str(),
            ),
            None => (String::new(), "/sys/fs/cgroup/GROUP"),
        };
        let text = format!(
            "the {}'s thread had no CPU for {:.0} % of the time, as its control group had used up its quota{allowed}",
            role.name(),
            withheld * 100.0
        );
        Some(Bound {
            code: Code::Cpu,
            place: None,
            host: Some(role),
            bound_bps: measured(run),
            evidence: vec![Line::new(text, format!("cat {folder}/cpu.stat: nr_throttled and throttled_usec grow"))],
            remedies: vec![Remedy::new(
                Some(role),
                "raise the quota of the program's control group, or of its container",
                lift_quota(folder),
            )],
        })
    })
}

/// Version 2 has one file, version 1 another, in folders of other names.
fn lift_quota(folder: &str) -> String {
    let unit = folder.rsplit('/').next().unwrap_or_default();
    match unit.rsplit_once('.') {
        Some((_, "service" | "slice" | "scope")) => format!("systemctl set-property --runtime {unit} CPUQuota="),
        _ if folder.contains("/cpu") => format!("echo -1 >{folder}/cpu.cfs_quota_us"),
        _ => format!("echo max >{folder}/cpu.max"),
    }
}

/// A window or buffer was full, and the kernel had no memory to let it grow: the limit of a control group, or TCP's of the whole machine.
pub(super) fn memory(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    let by = run.limited_by;
    let held = [by.send_buffer, by.receive_window];
    let most = by.application.max(by.congestion_window);
    ends(known, run).into_iter().zip(held).find_map(|((role, host, events), share)| {
        if share <= most {
            return None;
        }
        let what = if role == Role::Sender { "send buffer" } else { "receive window" };
        let full = format!("the {what} was full for {:.0} % of the time", share * 100.0);
        let pressed = events.tcp_memory_pressure_ns as f64 / run.duration_ns.max(1) as f64;
        let (text, command, remedy) = if pressed >= 0.5 {
            (
                format!("{full}, and TCP on this machine was short of memory for {:.0} % of it", pressed.min(1.0) * 100.0),
                "grep TCP /proc/net/protocols /proc/net/sockstat: press, and mem in pages".to_owned(),
                Remedy::new(
                    Some(role),
                    "let TCP use more memory: minimum, pressure, maximum, in pages",
                    grown(host, "net.ipv4.tcp_mem"),
                ),
            )
        } else if events.memory_limit_hits > 0 {
            let (limit, folder) = match &host.memory_limit {
                Some(limit) => (format!(" of {}", Bytes(limit.limit_bytes).rounded()), limit.folder.as_str()),
                None => (String::new(), "/sys/fs/cgroup/GROUP"),
            };
            let hits = events.memory_limit_hits;
            (
                format!("{full}, and its control group met its limit of memory{limit} {hits} times, in which memory of sockets counts"),
                if of_version_1(folder) {
                    format!("cat {folder}/memory.kmem.tcp.failcnt {folder}/memory.kmem.tcp.limit_in_bytes")
                } else {
                    format!("cat {folder}/memory.events {folder}/memory.stat: max, sock")
                },
                Remedy::new(
                    Some(role),
                    "raise the limit of memory of the program's control group, or of its container",
                    lift_memory(folder),
                ),
            )
        } else {
            return None;
        };
        Some(Bound {
            code: Code::MemoryLimit,
            place: None,
            host: Some(role),
            bound_bps: measured(run),
            evidence: vec![Line::new(text, command)],
            remedies: vec![remedy],
        })
    })
}

/// Each number of a kernel parameter four times as large.
fn grown(host: &HostFacts, key: &str) -> String {
    let numbers = host.sysctls.get(key).map(|text| {
        let four_times = |number: &str| number.parse::<u64>().ok().map(|number| number.saturating_mul(4).to_string());
        text.split_ascii_whitespace().filter_map(four_times).collect::<Vec<_>>().join(" ")
    });
    format!("sysctl -w {key}=\"{}\"", numbers.unwrap_or_else(|| "MINIMUM PRESSURE MAXIMUM".into()))
}

/// Whether a group is one of version 1, where each controller has a folder of its own.
fn of_version_1(folder: &str) -> bool {
    folder.contains("/memory")
}

fn lift_memory(folder: &str) -> String {
    let unit = folder.rsplit('/').next().unwrap_or_default();
    match unit.rsplit_once('.') {
        Some((_, "service" | "slice" | "scope")) => {
            format!("systemctl set-property --runtime {unit} MemoryMax=infinity")
        }
        _ if of_version_1(folder) => format!("echo -1 >{folder}/memory.kmem.tcp.limit_in_bytes"),
        _ => format!("echo max >{folder}/memory.max"),
    }
}

/// What happened at a host in all tests.
fn all_events(known: &Known<'_>, role: Role) -> HostEvents {
    let pick = |sender, receiver| if role == Role::Sender { sender } else { receiver };
    let tcp = known.tcp_runs().map(|run| pick(run.sender_events, run.receiver_events));
    let udp = known.udp_runs().map(|run| pick(run.sender_events, run.receiver_events));
    tcp.chain(udp).fold(HostEvents::default(), HostEvents::and)
}

/// Adds to losses at a host's netfilter that its table of connections was full.
pub(super) fn explain(known: &Known<'_>, causes: &mut [Cause]) {
    for cause in causes {
        let at_netfilter = matches!(cause.bound.place, Some(Location::ReceiverFilter | Location::SenderStack));
        let Some(role) = cause.bound.host.filter(|_| at_netfilter) else { continue };
        let drops = all_events(known, role).conntrack_drops;
        if drops == 0 {
            continue;
        }
        cause.bound.evidence.push(Line::new(table_text(host(known, role), drops), TABLE_COMMAND));
        cause.bound.remedies.insert(
            0,
            Remedy::new(
                Some(role),
                "enlarge the table of connections, or do not track bulk flows",
                enlarge(host(known, role)),
            ),
        );
    }
}

const TABLE_COMMAND: &str = "conntrack -S; sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max";

fn host<'a>(known: &Known<'a>, role: Role) -> &'a HostFacts {
    if role == Role::Sender { &known.evidence.sender } else { &known.evidence.receiver }
}

fn table_text(host: &HostFacts, drops: u64) -> String {
    let entries =
        host.conntrack.map_or(String::new(), |table| format!(" ({} of {} entries)", table.entries, table.most_entries));
    format!("netfilter's table of connections was full{entries}: {drops} packets or connections were dropped for it")
}

/// The table four times as large: an entry takes some 320 bytes (`nf_conntrack-sysctl.rst`).
fn enlarge(host: &HostFacts) -> String {
    let most = host.conntrack.map_or(262_144, |table| table.most_entries.saturating_mul(4));
    format!("sysctl -w net.netfilter.nf_conntrack_max={most}")
}

pub(super) fn findings(known: &Known<'_>, causes: &[Cause]) -> Vec<Finding> {
    let mut found = Vec::new();
    for role in [Role::Sender, Role::Receiver] {
        let (host, events) = (host(known, role), all_events(known, role));
        let mut push = |code: &str, text: String, remedy: String| {
            found.push(Finding { code: code.into(), host: Some(role), text, remedy });
        };
        let told = causes.iter().any(|cause| cause.bound.remedies.iter().any(|it| it.command == enlarge(host)));
        let nearly =
            |table: &crate::evidence::ConntrackFacts| table.entries as f64 >= NEARLY_FULL * table.most_entries as f64;
        if events.conntrack_drops > 0 && !told {
            push("conntrack", table_text(host, events.conntrack_drops), enlarge(host));
        } else if let Some(table) = host.conntrack.filter(|table| nearly(table) && table.most_entries > 0) {
            let text = format!(
                "netfilter's table of connections has {} of {} entries: when it is full, new connections are dropped",
                table.entries, table.most_entries
            );
            push("conntrack", text, enlarge(host));
        }
        if events.pause_frames_received > 0 {
            let text = format!(
                "{} pause frames stopped its link: the switch, or the other end behind it, takes no more (IEEE 802.3, annex 31B)",
                events.pause_frames_received
            );
            push("pause_frames", text, "find who sends them: a slow receiver on the same switch can stop all; ethtool -S IF; ethtool -A IF rx off to ignore them".into());
        }
        if events.pause_frames_sent > 0 {
            let text = format!(
                "it sent {} pause frames: its NIC could not hand packets to memory fast enough, and stopped the link",
                events.pause_frames_sent
            );
            push(
                "pause_frames",
                text,
                "enlarge the receive ring, spread its interrupts: ethtool -g IF, ethtool -S IF".into(),
            );
        }
    }
    found
}
