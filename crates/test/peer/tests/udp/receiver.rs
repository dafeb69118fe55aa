//! Losses at the receiving host, each provoked by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_kernel::{ethtool, mounts};
use longhaul_lab::{Lab, LabSpec};
use longhaul_result::{Location, LocationMethod};
use longhaul_udp::{Pace, UdpParameters};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::capture::{Capture, Wire};
use crate::hosts::*;

/// A stopped thread of another process. It continues when this is dropped.
pub(crate) struct Stopped(Pid);

impl Stopped {
    /// Stops the thread in a system call, where it holds no lock.
    pub(crate) fn new(thread: i32) -> Self {
        let stopped = Self(Pid::from_raw(thread));
        ptrace::seize(stopped.0, ptrace::Options::empty()).unwrap();
        loop {
            ptrace::interrupt(stopped.0).unwrap();
            waitpid(stopped.0, Some(WaitPidFlag::__WALL)).unwrap();
            let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap();
            if !call.starts_with("-1") && !call.starts_with("running") {
                return stopped;
            }
            ptrace::cont(stopped.0, None).unwrap();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// Whether the thread waits for another one to end: a futex without a time.
pub(crate) fn waits_for_a_thread(process: &Process, name: &str) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", process.thread(name))).unwrap();
    let words: Vec<&str> = call.split_whitespace().collect();
    words.len() > 4 && words[4] == "0x0" && words[0] == nix::libc::SYS_futex.to_string()
}

/// Once the reader is stopped, nothing leaves the buffer: it keeps what arrives until it is full, and loses all the rest. The kernel's own
/// count tells how many those are, the capture tells which.
#[test]
fn a_full_socket_buffer() {
    if !able() {
        return;
    }
    const PACKETS: u64 = 4_000;
    for wire in [true, false] {
        // Room for the 20 ms that a busy machine may keep the reader waiting.
        let asked = UdpParameters { sockbuf_bytes: Some(128 << 10), wire, ..parameters(PACKETS) };
        let asked = if wire { asked } else { UdpParameters { burst_packets: 4, ..asked } };
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        let (server, address) = serving_process(&lab, &[]);
        let reached = Capture::reaching(&lab, "server");
        let drops = || counter(&lab, "server", "Udp", "RcvbufErrors");
        let end = std::thread::scope(|scope| {
            let client = scope.spawn(|| test(&lab, address, asked, |_| {}));
            until("packets", || reached.bulk() > 100 || client.is_finished());
            let stopped = Stopped::new(server.thread("receive 0"));
            assert_eq!(drops(), 0, "the machine was too busy to read what came");
            until("the rest", || reached.bulk() as u64 == PACKETS || client.is_finished());
            drop(stopped);
            client.join().unwrap().unwrap()
        });
        let (result, reached, drops) = (result(&end, false), reached.finish(), drops());
        let bulk: Vec<(usize, u64)> =
            reached.iter().filter_map(|packet| Some((packet.unit, packet.sequence?))).collect();
        assert!(bulk.iter().map(|(_, sequence)| *sequence).eq(0..PACKETS), "all came to the host, in order");
        // The kernel counts packets without UDP_GRO, and super-packets with it.
        let units: BTreeSet<usize> = bulk.iter().map(|(unit, _)| *unit).collect();
        let dropped: BTreeSet<usize> = units.iter().rev().take(drops as usize).copied().collect();
        let expected = bulk.iter().filter(|(unit, _)| dropped.contains(unit)).map(|(_, sequence)| *sequence).collect();
        assert!((300..units.len() as u64).contains(&drops), "{drops} of {}", units.len());
        assert_lost(&result, Location::ReceiverSocketBuffer, &expected);
        assert!(result.losses.iter().all(|loss| loss.reason.starts_with("SOCKET_RCVBUFF")), "{:?}", reasons(&result));
        // A sender that was kept waiting sends more at once, and what is left over alone.
        let mut packets_of: BTreeMap<usize, u32> = BTreeMap::new();
        bulk.iter().for_each(|(unit, _)| *packets_of.entry(*unit).or_default() += 1);
        assert_eq!(packets_of.values().all(|packets| *packets == 1), wire, "{packets_of:?}");
        for loss in &result.losses {
            let units = bulk[loss.first_sequence as usize..][..loss.packets as usize].iter().map(|(unit, _)| unit);
            assert!(units.into_iter().all(|unit| packets_of[unit] == loss.unit_packets), "{loss:?}");
        }
    }
}

/// The reader of the events does not run while more of them come than its ring holds: those are known by number alone, and what the
/// path loses meanwhile stays the network's.
#[test]
fn more_drops_than_events_can_be_read() {
    if !able() {
        return;
    }
    const PACKETS: u64 = 220_000;
    // The ring holds 131,072 events.
    let asked = UdpParameters {
        sockbuf_bytes: Some(16 << 10),
        payload_bytes: 64,
        pace: Pace::SpacingNs(10_000),
        ..parameters(PACKETS)
    };
    let lab = lab("[[both]]\ndelay = '1ms'\n[[forward]]\nloss = { every = 1000 }\n");
    let (server, address) = serving_process(&lab, &[]);
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let end = std::thread::scope(|scope| {
        let client = scope.spawn(|| test(&lab, address, asked, |_| {}));
        until("packets", || reached.bulk() > 100 || client.is_finished());
        let stopped = [Stopped::new(server.thread("receive 0")), Stopped::new(server.thread("drops"))];
        until("drops", || counter(&lab, "server", "Udp", "RcvbufErrors") >= 180_000 || client.is_finished());
        drop(stopped);
        client.join().unwrap().unwrap()
    });
    let (result, caveats) = assemble(&end, false);
    let (left, reached) = (left.sequences(), reached.sequences());
    let at = |location| result.loss_by_location[&location];
    assert_eq!(at(Location::Network), (left.len() - reached.len()) as u64, "{:?}", result.loss_reasons);
    assert_eq!(at(Location::ReceiverSocketBuffer), reached.len() as u64 - result.received_packets);
    assert_eq!(at(Location::Unexplained), 0, "{:?} {caveats:?}", result.loss_reasons);
    let by_number = result.loss_reasons.iter().find(|reason| reason.reason.contains("more drops than events"));
    assert!(by_number.is_some_and(|reason| reason.packets > 10_000), "{:?}", result.loss_reasons);
}

#[test]
fn a_reader_that_stops_before_the_end() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let (server, address) = serving_process(&lab, &[]);
    let reached = Capture::reaching(&lab, "server");
    // One that sees no drop events, as a client on another machine does not see the server's.
    let client = testing_process(&lab, UNPRIVILEGED, address, &parameters(3_000));
    until("packets", || reached.bulk() > 100);
    let stopped = Stopped::new(server.thread("receive 0"));
    until("the rest", || reached.bulk() == 3_000);
    until("the session to end the reader", || waits_for_a_thread(&server, "session"));
    drop(stopped);
    let (result, _) = client.outcome().unwrap();
    assert_eq!(reached.sequences().len(), 3_000, "all came to the host");
    assert_eq!(counter(&lab, "server", "Udp", "RcvbufErrors"), 0);
    // What is not read is what came last.
    assert!((100..2_999).contains(&result.received_packets), "{}", result.received_packets);
    assert_lost(&result, Location::ReceiverApplication, &(result.received_packets..3_000).collect());
}

#[test]
fn netfilter() {
    if !able() {
        return;
    }
    for hook in ["prerouting", "input"] {
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        let rule = format!(
            "nft 'add table inet t; add chain inet t c {{ type filter hook {hook} priority 0; }}; \
             add rule inet t c udp length 508 numgen inc mod 100 0 drop'"
        );
        if !on(&lab, "server", &rule) {
            return;
        }
        let result = result(&run(&lab, parameters(3_000)), false);
        assert_eq!(result.location_method, LocationMethod::Bpf);
        assert_lost(&result, Location::ReceiverFilter, &(0..3_000).step_by(100).collect());
        assert!(result.losses.iter().all(|loss| loss.reason.starts_with("NETFILTER_DROP")), "{:?}", reasons(&result));
    }
}

/// The rule matches the first packet of a batch and drops the batch: the capture shows which packets were in it.
#[test]
fn netfilter_takes_batches_whole() {
    if !able() {
        return;
    }
    for hook in ["prerouting", "input"] {
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        // The low byte of the sequence, big endian, behind the UDP header, the cookie and five bytes.
        let rule = format!(
            "nft 'add table inet t; add chain inet t c {{ type filter hook {hook} priority 0; }}; \
             add rule inet t c udp length > 100 @th,136,8 & 0x3f == 0x08 drop'"
        );
        if !on(&lab, "server", &rule) {
            return;
        }
        let reached = Capture::reaching(&lab, "server");
        let asked = UdpParameters { wire: false, burst_packets: 8, ..parameters(4_000) };
        let result = result(&run(&lab, asked), false);
        let mut batches: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for packet in reached.finish() {
            batches.entry(packet.unit).or_default().extend(packet.sequence);
        }
        assert_eq!(batches.values().flatten().count(), 4_000, "all came to the host");
        let batches: BTreeSet<Vec<u64>> = batches.into_values().collect();
        assert!(batches.iter().any(|batch| batch.len() > 1), "none travelled together");
        let expected = batches.iter().filter(|batch| batch.first().is_some_and(|first| first % 64 == 8));
        let expected: BTreeSet<u64> = expected.flatten().copied().collect();
        assert!(expected.len() >= 40, "{}", expected.len());
        assert_lost(&result, Location::ReceiverFilter, &expected);
        for loss in &result.losses {
            // What is left over at the end of a burst goes alone.
            let (first, packets) = (loss.first_sequence, loss.packets);
            assert!(batches.contains(&(first..first + packets).collect::<Vec<_>>()), "{loss:?}");
            assert_eq!(packets, u64::from(loss.unit_packets), "{loss:?}");
        }
    }
}

/// The packets that `sevens.bpf.c` drops.
pub(crate) fn sevens(packets: u64) -> BTreeSet<u64> {
    (0..packets).filter(|sequence| sequence % 7 == 3).collect()
}

/// Attaches the program with `command`, where OBJECT stands for its file.
pub(crate) fn hooked(lab: &Lab, command: &str) -> bool {
    hooked_on(lab, "server", command)
}

/// The same on any host.
pub(crate) fn hooked_on(lab: &Lab, host: &str, command: &str) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let object = std::env::temp_dir().join(format!("longhaul-sevens-{}-{number}.o", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/udp/sevens.bpf.c");
    let compiled = Command::new("clang").args(["-O2", "-target", "bpf", "-c", source, "-o"]).arg(&object).output();
    let compiled = compiled.expect("clang, which scripts/deps.sh gets");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let attached = on(lab, host, &command.replace("OBJECT", &object.to_string_lossy()));
    let _ = fs::remove_file(object);
    attached
}

fn drops_by_sevens(command: &str, reason: &str) {
    if !able() {
        return;
    }
    // What sends to a device with XDP in its driver parts batches before; elsewhere a batch has the fate of its first packet.
    let batched = UdpParameters { wire: false, burst_packets: 8, ..parameters(2_000) };
    let driver = command.contains("xdpdrv").then_some(batched);
    for asked in std::iter::once(parameters(2_000)).chain(driver) {
        let lab = lab("[[both]]\ndelay = '1ms'\n");
        if !hooked(&lab, command) {
            return;
        }
        let result = result(&run(&lab, asked), false);
        assert_lost(&result, Location::ReceiverFilter, &sevens(2_000));
        assert!(result.losses.iter().all(|loss| loss.reason.contains(reason)), "{:?}", reasons(&result));
    }
}

#[test]
fn tc_at_ingress() {
    let command = "tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress bpf direct-action obj OBJECT sec tc";
    drops_by_sevens(command, "TC_INGRESS");
}

#[test]
fn xdp_in_the_driver() {
    drops_by_sevens("ip link set dev eth0 xdpdrv obj OBJECT sec xdp", "veth_xdp_rcv_skb");
}

#[test]
fn xdp_generic() {
    drops_by_sevens("ip link set dev eth0 xdpgeneric obj OBJECT sec xdp", "do_xdp_generic");
}

/// The server's receive ring has 256 places, and its reader sleeps for 100 ms; prints `skipped` where the kernel cannot do that.
pub(crate) fn with_a_sleeping_ring(lab: &Lab) -> bool {
    // Only with GRO here and without TSO at the other end do frames go by the ring; its reader then sleeps.
    let port = lab.host("server").unwrap().plan.port.clone();
    let off =
        ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"]
            .map(|name| (name, false));
    lab.core().enter(|| ethtool::set_features(&port, &off)).unwrap().unwrap();
    let held = lab.host("server").unwrap().namespace.enter(|| {
        ethtool::set_features("eth0", &[("rx-gro", true)]).map_err(|error| error.to_string())?;
        mounts::private_mounts().and_then(|()| mounts::fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "1000"), ("gro_flush_timeout", "100000000")] {
            let path = format!("/sys/class/net/eth0/{file}");
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok::<(), String>(())
    });
    held.unwrap().inspect_err(|why| longhaul_testing::skipped!("{why}")).is_ok()
}

#[test]
fn a_full_ring_of_a_veth() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    if !with_a_sleeping_ring(&lab) {
        return;
    }
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    // 256 places in the ring, 500 packets in its reader's sleep of 100 ms.
    let asked = UdpParameters { pace: Pace::SpacingNs(200_000), ..parameters(4_000) };
    let end = run(&lab, asked);
    let (left, reached) = (left.sequences(), reached.sequences());
    let result = result(&end, false);
    let full = lab.status().unwrap().far_port_full_packets;
    assert_eq!(left.len(), 4_000);
    assert_lost(&result, Location::ReceiverRing, &(&left - &reached));
    // Control packets are among those that the emulator counts.
    assert!(result.lost_packets > 100 && full >= result.lost_packets, "{full} {}", result.lost_packets);
}

/// Whether the one's complement sum over `bytes` and `more` is that of whole data (RFC 1071).
fn sums_up(bytes: &[u8], more: u64) -> bool {
    let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u64>() + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// What a bit of a frame was flipped in.
#[derive(Debug, PartialEq, Eq)]
enum Damage {
    /// None, or in a field that nothing checks: the source address of the frame.
    None,
    /// In what the stack checks: a checksum is wrong, or the address is another host's.
    Stack,
    /// In the protocol: the frame is not IP, and no socket wants it.
    Protocol,
}

/// By the rules of RFC 791 and RFC 768, of a frame that the host `mac` got.
fn damage(frame: &[u8], mac: &[u8]) -> Damage {
    if frame[12..14] != [8, 0] {
        return Damage::Protocol;
    }
    let (ip, udp) = (&frame[14..34], &frame[34..]);
    // The pseudo header: addresses, protocol, length.
    let pseudo = ip[12..20].chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1])).sum::<u64>();
    let pseudo = pseudo + u64::from(ip[9]) + (u64::from(udp[4]) << 8 | u64::from(udp[5]));
    let whole = &frame[..6] == mac && ip[0] == 0x45 && sums_up(ip, 0) && (udp[6..8] == [0, 0] || sums_up(udp, pseudo));
    if whole { Damage::None } else { Damage::Stack }
}

#[test]
fn damaged_packets() {
    if !able() {
        return;
    }
    const PACKETS: u64 = 3_000;
    for wire in [true, false] {
        let lab = lab("[[both]]\ndelay = '1ms'\n[[forward]]\ncorrupt = '3%'\n");
        let reached = Capture::reaching(&lab, "server");
        let asked = UdpParameters { payload_bytes: 900, wire, ..parameters(PACKETS) };
        let end = run(&lab, if wire { asked } else { UdpParameters { burst_packets: 8, ..asked } });
        // The path keeps the order and loses nothing: behind packet n is n + 1, whatever became of its header.
        let packets = reached.finish();
        let bulk: Vec<_> = packets
            .iter()
            .filter(
                |packet| if packet.frame.is_empty() { packet.sequence.is_some() } else { packet.frame.len() == 942 },
            )
            .collect();
        assert_eq!(bulk.len() as u64, PACKETS);
        let mac = lab.host("server").unwrap().plan.mac;
        let of = |what: Damage| -> BTreeSet<u64> {
            let is =
                |packet: &Wire| !packet.unsummed && !packet.frame.is_empty() && damage(&packet.frame, &mac) == what;
            bulk.iter().zip(0..).filter(|(packet, _)| is(packet)).map(|(_, sequence)| sequence).collect()
        };
        let (stack, protocol) = (of(Damage::Stack), of(Damage::Protocol));
        assert!((40..=150).contains(&stack.len()), "{}", stack.len());
        let result = result(&end, false);
        let all: BTreeSet<u64> = sequences(&result).into_values().flatten().collect();
        assert_eq!(all, &stack | &protocol, "{:?}", reasons(&result));
        if protocol.is_empty() {
            assert_lost(&result, Location::ReceiverStack, &stack);
        } else {
            // What is not IP nobody takes nor drops where a packet socket looks on, as the capture does.
            let by_stack = result.loss_by_location[&Location::ReceiverStack];
            assert!((stack.len()..=all.len()).contains(&(by_stack as usize)), "{:?}", reasons(&result));
        }
    }
}

/// `net.core.netdev_max_backlog`, the whole machine's; what it was before again when dropped.
pub(crate) struct Backlog(String);

impl Backlog {
    const FILE: &str = "/proc/sys/net/core/netdev_max_backlog";

    pub(crate) fn of(packets: u32) -> Self {
        let before = Self(fs::read_to_string(Self::FILE).unwrap());
        fs::write(Self::FILE, packets.to_string()).unwrap();
        before
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        fs::write(Self::FILE, &self.0).unwrap();
    }
}

/// A lab whose server has batches cut before they come, all before any packet of them leaves the backlog of the CPU that RPS steers
/// them to; prints `skipped` where the kernel cannot do that.
pub(crate) fn lab_with_a_steered_server() -> Option<Lab> {
    let lab = lab_with(LabSpec { cpus: vec![1], ..LabSpec::default() }, "[[both]]\ndelay = '1ms'\n");
    let port = lab.host("server").unwrap().plan.port.clone();
    lab.core().enter(|| ethtool::set_features(&port, &[("tx-udp-segmentation", false)])).unwrap().unwrap();
    let steered = lab.host("server").unwrap().namespace.enter(|| {
        mounts::private_mounts().and_then(|()| mounts::fresh_sysfs()).map_err(|error| error.to_string())?;
        fs::write("/sys/class/net/eth0/queues/rx-0/rps_cpus", "2").map_err(|error| error.to_string())
    });
    steered.unwrap().inspect_err(|why| longhaul_testing::skipped!("{why}")).ok()?;
    Some(lab)
}

/// `net.core.netdev_max_backlog` is the whole machine's: run it alone.
#[test]
#[ignore = "sets net.core.netdev_max_backlog of the whole machine: run it alone"]
fn a_full_backlog() {
    if !able() {
        return;
    }
    let Some(lab) = lab_with_a_steered_server() else { return };
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let asked = UdpParameters { wire: false, burst_packets: 32, ..parameters(3_200) };
    let before = Backlog::of(20);
    let end = run(&lab, asked);
    drop(before);
    let (left, reached) = (left.sequences(), reached.sequences());
    let result = result(&end, false);
    assert_eq!(left.len(), 3_200, "all left the client");
    assert_lost(&result, Location::ReceiverBacklog, &(&left - &reached));
}
