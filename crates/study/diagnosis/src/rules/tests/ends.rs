//! What holds a program back at its host: control groups, memory, the table of connections, disks, pauses in its writing.

use super::*;
use crate::events::SoftirqCpu;
use crate::evidence::{ConntrackFacts, CpuLimitFacts, DiskFacts, MemoryLimitFacts};

fn first(evidence: &Evidence) -> Bound {
    diagnose(evidence).causes.into_iter().next().expect("a cause").bound
}

#[test]
fn a_quota_is_told_from_a_busy_cpu() {
    let second = 1_000 * MS;
    let run = |throttled_ns| TcpFacts {
        receiver_cpu: Some(CpuFacts { cpu_time_ns: 3 * second, run_delay_ns: 7 * second, elapsed_ns: 10 * second }),
        receiver_events: HostEvents { throttled_ns, ..HostEvents::default() },
        limited_by: LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() },
        ..tcp(Purpose::Default, 40 * MBIT)
    };
    let evidence = |throttled_ns| {
        let mut evidence = with(run(throttled_ns), clear_path());
        let folder = "/sys/fs/cgroup/system.slice/longhaul.service".to_owned();
        evidence.receiver.cpu_limit = Some(CpuLimitFacts { folder, quota_us: 30_000, period_us: 100_000 });
        evidence
    };
    let quota = first(&evidence(7 * second));
    assert_eq!((quota.code, quota.host), (Code::Cpu, Some(Role::Receiver)));
    assert!(quota.evidence[0].text.contains("70 % of the time") && quota.evidence[0].text.contains("0.30 CPUs"));
    assert_eq!(quota.remedies[0].command, "systemctl set-property --runtime longhaul.service CPUQuota=");
    // The thread waits, and not for its group: something else has the CPU.
    let busy = first(&evidence(0));
    assert_eq!((busy.code, busy.host), (Code::Cpu, Some(Role::Receiver)));
    assert!(busy.remedies[0].text.contains("stop what competes"), "{busy:?}");
    // UDP that the quota kept from its CPU says nothing of the path.
    let starved = UdpFacts {
        receiver_cpu: Some(CpuFacts { cpu_time_ns: second, run_delay_ns: 3 * second, elapsed_ns: 4 * second }),
        receiver_events: HostEvents { throttled_ns: 9 * second, ..HostEvents::default() },
        ..udp(Purpose::Rate, 191 * MBIT, 20 * MBIT, 300)
    };
    let found = diagnose(&with(run(7 * second), vec![Run::Udp(starved.clone())]));
    assert_eq!(found.causes[0].bound.code, Code::Cpu, "{found:?}");
    assert!(found.unknown.iter().any(|unknown| unknown.what.contains("quota")), "{found:?}");
    let not_starved = UdpFacts { receiver_events: HostEvents::default(), ..starved };
    let found = diagnose(&with(run(7 * second), vec![Run::Udp(not_starved)]));
    assert_eq!(found.causes[0].bound.code, Code::Shaper, "{found:?}");
    // A group may be stopped for long while the thread has nothing to do.
    let mut idle = run(9 * second);
    idle.receiver_cpu = Some(CpuFacts { cpu_time_ns: second, run_delay_ns: second, elapsed_ns: 10 * second });
    assert_eq!(first(&with(idle, clear_path())).code, Code::ReceiveWindow);
}

/// A receiver with so many firewall rules that one CPU handles 5,000 packets a second.
#[test]
fn a_cpu_without_time_for_packets_is_told_from_a_short_queue() {
    let events = |softirq_ns, busy_ns| HostEvents {
        softirq_cpu: Some(SoftirqCpu { cpu: 3, softirq_ns, busy_ns, watched_ns: 10_000 * MS }),
        ..HostEvents::default()
    };
    for place in [Location::ReceiverRing, Location::ReceiverBacklog] {
        let found = |events: HostEvents, tcp_place: Location| {
            let run = TcpFacts { receiver_events: events, ..lossy(Purpose::Default, 50 * MBIT, tcp_place) };
            let over = UdpFacts {
                loss_packets: BTreeMap::from([(place, 30_000)]),
                receiver_events: events,
                ..udp(Purpose::Rate, 191 * MBIT, 58 * MBIT, 200)
            };
            let mut runs = vec![Run::Udp(udp(Purpose::Rate, 19 * MBIT, 19 * MBIT, 0)), Run::Udp(over)];
            runs.insert(0, Run::Tcp(run));
            diagnose(&evidence(runs)).causes
        };
        for tcp_place in [place, Location::Network] {
            let causes = found(events(9_000 * MS, 9_900 * MS), tcp_place);
            let cpu = causes.iter().find(|cause| cause.bound.code == Code::Cpu).expect("the CPU is named");
            assert_eq!((cpu.bound.host, cpu.bound.place), (Some(Role::Receiver), Some(place)), "{causes:?}");
            assert!(cpu.bound.evidence[0].text.contains("CPU 3 of the receiver was busy for 99 %"), "{cpu:?}");
            let same_place = causes.iter().filter(|cause| cause.bound.place == Some(place));
            assert_eq!(same_place.count(), 1, "{causes:?}");
        }
        // A CPU that had time: the queue is too short. One that a program kept busy: not the packets.
        assert_eq!(found(events(6_000 * MS, 7_000 * MS), place)[0].bound.code, Code::Queue);
        assert_eq!(found(events(2_000 * MS, 9_900 * MS), place)[0].bound.code, Code::Queue);
        assert_eq!(found(HostEvents::default(), place)[0].bound.code, Code::Queue);
    }
}

#[test]
fn a_window_that_has_no_memory_to_grow() {
    let run = |events| TcpFacts {
        limited_by: LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() },
        receiver_events: events,
        ..tcp(Purpose::Default, 40 * MBIT)
    };
    let hits = HostEvents { memory_limit_hits: 300, ..HostEvents::default() };
    let mut evidence = with(run(hits), clear_path());
    let folder = "/sys/fs/cgroup/docker/7".to_owned();
    evidence.receiver.memory_limit = Some(MemoryLimitFacts { folder, limit_bytes: 64 << 20 });
    let group = first(&evidence);
    assert_eq!((group.code, group.host), (Code::MemoryLimit, Some(Role::Receiver)));
    assert_eq!(group.remedies[0].command, "echo max >/sys/fs/cgroup/docker/7/memory.max");
    let pressed = HostEvents { tcp_memory_pressure_ns: 9_000 * MS, ..HostEvents::default() };
    let mut evidence = with(run(pressed), clear_path());
    evidence.receiver = host(&[("net.ipv4.tcp_mem", "1000 2000 3000")]);
    let machine = first(&evidence);
    assert_eq!(machine.code, Code::MemoryLimit);
    assert_eq!(machine.remedies[0].command, "sysctl -w net.ipv4.tcp_mem=\"4000 8000 12000\"");
    // Where the window had room, memory was no limit.
    let mut roomy = run(hits);
    roomy.limited_by = LimitedBy { congestion_window: 1.0, ..LimitedBy::default() };
    assert_eq!(first(&with(roomy, clear_path())).code, Code::CongestionControl);
    assert_eq!(first(&with(run(HostEvents::default()), clear_path())).code, Code::ReceiveWindow);
}

#[test]
fn a_full_table_of_connections_explains_losses_at_netfilter() {
    let drops = HostEvents { conntrack_drops: 40, ..HostEvents::default() };
    let table = Some(ConntrackFacts { entries: 65_536, most_entries: 65_536 });
    let evidence = |place| {
        let run = TcpFacts { receiver_events: drops, ..lossy(Purpose::Default, 30 * MBIT, place) };
        let mut evidence = with(run, clear_path());
        evidence.receiver.conntrack = table;
        evidence
    };
    let bound = first(&evidence(Location::ReceiverFilter));
    assert_eq!(bound.remedies[0].command, "sysctl -w net.netfilter.nf_conntrack_max=262144");
    // Losses elsewhere have another cause, and the table is a finding.
    let other = diagnose(&evidence(Location::Network));
    assert!(other.causes[0].bound.remedies.iter().all(|remedy| !remedy.command.contains("conntrack")));
    assert!(other.findings.iter().any(|finding| finding.code == "conntrack" && finding.text.contains("was full")));
    let mut nearly = with(tcp(Purpose::Default, 180 * MBIT), clear_path());
    for (entries, told) in [(59_000, true), (30_000, false)] {
        nearly.sender.conntrack = Some(ConntrackFacts { entries, most_entries: 65_536 });
        assert_eq!(diagnose(&nearly).findings.iter().any(|finding| finding.code == "conntrack"), told);
    }
}

#[test]
fn pause_frames_are_told_for_the_host_that_they_stop() {
    let events = HostEvents { pause_frames_received: 7, ..HostEvents::default() };
    let run = TcpFacts { sender_events: events, ..tcp(Purpose::Default, 180 * MBIT) };
    let found = diagnose(&with(run, clear_path())).findings;
    let hosts: Vec<_> = found.iter().filter(|it| it.code == "pause_frames").map(|it| it.host).collect();
    assert_eq!(hosts, [Some(Role::Sender)]);
}

fn disk(host: Role, bps: u64, past_cache: bool) -> DiskFacts {
    DiskFacts { host, path: "/data".into(), bytes: bps / 8, elapsed_ns: 1_000 * MS, past_cache }
}

#[test]
fn a_slow_disk_limits_a_flow_that_is_fast() {
    let with_disk =
        |tcp_bps, disk| Evidence { disks: vec![disk], ..with(tcp(Purpose::Default, tcp_bps), clear_path()) };
    let slow = with_disk(180 * MBIT, disk(Role::Sender, 80 * MBIT, true));
    assert_eq!(named(&slow), [(Code::Disk, None, Some(Role::Sender))]);
    // With a lower limit of the path it is the second cause.
    let both = with_disk(20 * MBIT, disk(Role::Receiver, 80 * MBIT, true));
    let disk_second = [(Code::CongestionControl, None, Some(Role::Sender)), (Code::Disk, None, Some(Role::Receiver))];
    assert_eq!(named(&both), disk_second);
    // A fast disk is a bound above; one that the page cache may have helped is "at least".
    assert_eq!(named(&with_disk(180 * MBIT, disk(Role::Sender, 900 * MBIT, true))), []);
    let cached = diagnose(&with_disk(180 * MBIT, disk(Role::Sender, 80 * MBIT, false)));
    assert!(cached.causes.is_empty());
    let bound = cached.bounds.iter().find(|bound| bound.code == Code::Disk).unwrap();
    assert_eq!(bound.bound_bps, Interval::at_least(72 * MBIT));
}

#[test]
fn a_connection_that_forgets_its_window_in_a_pause() {
    // 2 MB: the first in 0.8 s, that is 20 Mbit/s.
    let repeated = |later_ms: u64| {
        Run::Tcp(TcpFacts {
            transfer_bytes: Some(2_000_000),
            transfers_ns: [800, later_ms, later_ms, later_ms].map(|ms| ms * MS).to_vec(),
            ..tcp(Purpose::Intervals, 3 * MBIT)
        })
    };
    let evidence = |later_ms, after_idle| {
        let mut runs = clear_path();
        runs.push(repeated(later_ms));
        let mut evidence = with(tcp(Purpose::Default, 180 * MBIT), runs);
        evidence.sender = host(&[("net.ipv4.tcp_slow_start_after_idle", after_idle)]);
        evidence
    };
    let forgets = first(&evidence(800, "1"));
    assert_eq!((forgets.code, forgets.host), (Code::SlowStart, Some(Role::Sender)));
    assert_eq!(forgets.remedies[0].command, "sysctl -w net.ipv4.tcp_slow_start_after_idle=0");
    // It does not forget, and is slow: its window is small.
    assert!(first(&evidence(800, "0")).remedies[0].command.contains("initcwnd"));
    assert!(first(&evidence(400, "1")).remedies[0].command.contains("initcwnd"));
    assert_eq!(named(&evidence(95, "1")), []);
}

/// Its rate is not known. 0 bit/s would be slower than all others.
#[test]
fn a_transfer_without_a_time_is_left_out_and_counted() {
    let evidence = |times_ms: &[u64]| {
        let mut runs = clear_path();
        runs.push(Run::Tcp(TcpFacts {
            transfer_bytes: Some(2_000_000),
            transfers_ns: times_ms.iter().map(|ms| ms * MS).collect(),
            ..tcp(Purpose::Intervals, 3 * MBIT)
        }));
        with(tcp(Purpose::Default, 180 * MBIT), runs)
    };
    assert_eq!(named(&evidence(&[95, 95, 0, 95, 0, 0])), []);
    let slow = first(&evidence(&[800, 800, 0, 800, 0, 0]));
    assert_eq!((slow.code, slow.bound_bps), (Code::SlowStart, Interval::measured(20 * MBIT, 20 * MBIT)));
    assert!(slow.evidence.iter().any(|line| line.text.starts_with("3 are left out: ")), "{slow:#?}");
    // Too few are left, or the first has none.
    assert_eq!(named(&evidence(&[800, 0, 0, 800])), []);
    assert_eq!(named(&evidence(&[0, 800, 800, 800])), []);
}

#[test]
fn a_plan_with_pauses_has_no_transfers_alone() {
    let asked = Asked { size_bytes: Some(2_000_000), every_ns: Some(5_000 * MS), ..ASKED };
    let answer = |step: &Step| match step {
        Step::Tcp { purpose, .. } => Run::Tcp(tcp(*purpose, 185 * MBIT)),
        Step::Udp { purpose, rate_bps, .. } => Run::Udp(udp(*purpose, *rate_bps, *rate_bps, 0)),
    };
    use Purpose::{Default, Idle, Intervals, Marks, Rate};
    assert_eq!(planned(&asked, answer), [Idle, Default, Intervals, Rate, Marks]);
}
