//! Losses at the receiving host, each provoked alone.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_kernel::{ethtool, mounts};
use longhaul_lab::{Lab, LabSpec};
use longhaul_session::control::{Pace, TestEnd, UdpParameters};
use longhaul_session::locate::{Location, LocationMethod};
use longhaul_wire::probe::Probe;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::capture::Capture;
use crate::hosts::*;

/// A thread of another process that does not run; it goes on when this is dropped.
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

/// A test against a server whose reader `meddle` may stop and let go, and what reached the server.
fn meddled(
    asked: UdpParameters,
    path: &str,
    meddle: impl FnOnce(&Lab, &Process, &Capture),
) -> (TestEnd, BTreeSet<u64>, Lab) {
    let lab = lab(path);
    let (server, address) = serving_process(&lab, &[]);
    let reached = Capture::reaching(&lab, "server");
    let end = std::thread::scope(|scope| {
        let client = scope.spawn(|| test(&lab, address, asked, |_| {}));
        until("packets", || reached.bulk() > 100 || client.is_finished());
        meddle(&lab, &server, &reached);
        client.join().unwrap().unwrap()
    });
    (end, reached.sequences(), lab)
}

#[test]
fn a_full_socket_buffer() {
    if !able() {
        return;
    }
    for wire in [true, false] {
        let asked = UdpParameters { sockbuf_bytes: Some(16 << 10), wire, ..parameters(6_000) };
        let asked = if wire { asked } else { UdpParameters { burst_packets: 4, ..asked } };
        let (end, reached, lab) = meddled(asked, "[[both]]\ndelay = '1ms'\n", |lab, server, _| {
            let stopped = Stopped::new(server.thread("receive 0"));
            until("drops", || counter(lab, "server", "Udp", "RcvbufErrors") >= 300);
            drop(stopped);
        });
        let result = result(&end, false);
        assert_eq!(reached.len(), 6_000, "all came to the host");
        assert_eq!(lost_at(&result), [(Location::ReceiverSocketBuffer, result.lost_packets)], "{:?}", reasons(&result));
        assert!(result.losses.iter().all(|loss| loss.reason.starts_with("SOCKET_RCVBUFF")), "{:?}", reasons(&result));
        // The kernel counts packets without UDP_GRO, and super-packets with it.
        let counted = counter(&lab, "server", "Udp", "RcvbufErrors");
        if wire {
            assert_eq!(result.lost_packets, counted);
            // A small buffer may lose a packet at another time, too.
            assert!(result.losses.iter().any(|loss| loss.packets >= 250), "{:?}", result.losses);
        } else {
            assert!(result.lost_packets >= counted, "{} {counted}", result.lost_packets);
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
    let (result, warnings) = assemble(&end, false);
    let (left, reached) = (left.sequences(), reached.sequences());
    let at = |location| result.loss_by_location[&location];
    assert_eq!(at(Location::Network), (left.len() - reached.len()) as u64, "{:?}", result.loss_reasons);
    assert_eq!(at(Location::ReceiverSocketBuffer), reached.len() as u64 - result.received_packets);
    assert_eq!(at(Location::Unexplained), 0, "{:?} {warnings:?}", result.loss_reasons);
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

#[test]
fn netfilter_takes_batches_whole() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
    let rule = "nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                add rule inet t c udp length > 100 numgen inc mod 50 0 drop'";
    if !on(&lab, "server", rule) {
        return;
    }
    let asked = UdpParameters { wire: false, burst_packets: 8, ..parameters(4_000) };
    let result = result(&run(&lab, asked), false);
    assert_eq!(lost_at(&result), [(Location::ReceiverFilter, result.lost_packets)], "{:?}", reasons(&result));
    assert!(result.lost_packets >= 40, "{}", result.lost_packets);
    for loss in &result.losses {
        assert!(loss.unit_packets > 1 && loss.packets == u64::from(loss.unit_packets), "{loss:?}");
    }
}

/// The packets that `sevens.bpf.c` drops.
pub(crate) fn sevens(packets: u64) -> BTreeSet<u64> {
    (0..packets).filter(|sequence| sequence % 7 == 3).collect()
}

/// Attaches the program with `command`, where OBJECT stands for its file.
pub(crate) fn hooked(lab: &Lab, command: &str) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let object = std::env::temp_dir().join(format!("longhaul-sevens-{}-{number}.o", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/udp/sevens.bpf.c");
    let compiled = Command::new("clang").args(["-O2", "-target", "bpf", "-c", source, "-o"]).arg(&object).output();
    match compiled {
        Err(error) => {
            println!("skipped: clang: {error}");
            return false;
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
    let attached = on(lab, "server", &command.replace("OBJECT", &object.to_string_lossy()));
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

#[test]
fn a_full_ring_of_a_veth() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n");
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
    if let Err(why) = held.unwrap() {
        return println!("skipped: {why}");
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

#[test]
fn damaged_packets() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\n[[forward]]\ncorrupt = '3%'\n");
    let reached = Capture::reaching(&lab, "server");
    let end = run(&lab, UdpParameters { payload_bytes: 900, ..parameters(3_000) });
    let packets = reached.finish();
    let result = result(&end, false);
    let lost = &result.lost_packets;
    assert!((40..=150).contains(lost), "{lost}");
    // The path keeps the order and loses nothing: the packet behind number n is n + 1, whatever became of its header.
    let bulk: Vec<&Vec<u8>> =
        packets.iter().map(|packet| &packet.frame).filter(|frame| (930..=950).contains(&frame.len())).collect();
    assert_eq!(bulk.len(), 3_000);
    let whole = |frame: &[u8], sequence: u64| {
        let reference =
            bulk.iter().find(|frame| Probe::parse(&frame[42..]).is_some_and(|p| p.sequence < 3_000)).unwrap();
        // Addresses of Ethernet are not summed up; everything else but identification, sums, sequence and time is alike.
        let alike = |range: std::ops::Range<usize>| frame[range.clone()] == reference[range];
        alike(12..18)
            && alike(20..24)
            && alike(26..40)
            && alike(42..46)
            && alike(60..942)
            && Probe::parse(&frame[42..]).is_some_and(|probe| probe.sequence == sequence)
    };
    let suspected: BTreeSet<u64> = (0..3_000).filter(|n| !whole(bulk[*n as usize], *n)).collect();
    let places = sequences(&result);
    let all: BTreeSet<u64> = places.values().flatten().copied().collect();
    // A flipped bit in a sum, an address or a time is not seen here, but the receiver saw it.
    assert!(suspected.is_subset(&all), "{:?}", &suspected - &all);
    assert_eq!(lost_at(&result), [(Location::ReceiverStack, *lost)], "{:?}", reasons(&result));
}

/// `net.core.netdev_max_backlog` is the whole machine's: run it alone.
#[test]
#[ignore = "sets net.core.netdev_max_backlog of the whole machine: run it alone"]
fn a_full_backlog() {
    if !able() {
        return;
    }
    struct Backlog(String);
    const FILE: &str = "/proc/sys/net/core/netdev_max_backlog";
    impl Drop for Backlog {
        fn drop(&mut self) {
            fs::write(FILE, &self.0).unwrap();
        }
    }
    let lab = lab_with(LabSpec { cpus: vec![1], ..LabSpec::default() }, "[[both]]\ndelay = '1ms'\n");
    // A batch is cut into packets on its way into the cable, all before any of them leaves the backlog of the CPU that RPS
    // steers them to.
    let port = lab.host("server").unwrap().plan.port.clone();
    lab.core().enter(|| ethtool::set_features(&port, &[("tx-udp-segmentation", false)])).unwrap().unwrap();
    let steered = lab.host("server").unwrap().namespace.enter(|| {
        mounts::private_mounts().and_then(|()| mounts::fresh_sysfs()).map_err(|error| error.to_string())?;
        fs::write("/sys/class/net/eth0/queues/rx-0/rps_cpus", "2").map_err(|error| error.to_string())
    });
    if let Err(why) = steered.unwrap() {
        return println!("skipped: {why}");
    }
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let asked = UdpParameters { wire: false, burst_packets: 32, ..parameters(3_200) };
    let before = Backlog(fs::read_to_string(FILE).unwrap());
    fs::write(FILE, "20").unwrap();
    let end = run(&lab, asked);
    drop(before);
    let (left, reached) = (left.sequences(), reached.sequences());
    let result = result(&end, false);
    assert_eq!(left.len(), 3_200, "all left the client");
    assert_lost(&result, Location::ReceiverBacklog, &(&left - &reached));
}
