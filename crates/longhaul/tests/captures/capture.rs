//! `longhaul capture` and `longhaul convert`, on loopback and veths of hosts of their own.

use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{longhaul, object};
use longhaul_captures::header_log::{About, HeaderLogReader};
use longhaul_captures::ledger::DroppedAt;
use longhaul_captures::{CaptureReader, InterfaceDirection, Packet, Transport};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::schedule::pin_to;
use longhaul_testing::program::Program;
use serde_json::{Value, json};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A port that nobody else uses.
const PORT: u16 = 7070;
/// Of each datagram: enough for its number.
const PAYLOAD_BYTES: usize = 20;

/// A host with loopback alone, and a folder.
struct Host {
    namespace: NetNamespace,
    folder: PathBuf,
    /// One sends to the other. Made once: a program that another test starts may hold a socket for a moment after it was closed here.
    sockets: OnceLock<(UdpSocket, UdpSocket)>,
}

impl Host {
    fn new(name: &str) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
            return None;
        }
        let namespace = NetNamespace::create().unwrap();
        namespace.enter(|| Netlink::open().unwrap().set_up(1, true).unwrap()).unwrap();
        let folder = std::env::temp_dir().join(format!("longhaul-capture-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { namespace, folder, sockets: OnceLock::new() })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Starts a capture into `spool`, and waits until it sees packets.
    fn capture(&self, options: &[&str]) -> Capture {
        self.start(Command::new(LONGHAUL).args(["capture", "-J", "-o", &self.path("spool")]).args(options))
    }

    fn start(&self, command: &mut Command) -> Capture {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.namespace.enter(|| command.spawn().unwrap()).unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut said = String::new();
        let mut byte = [0];
        while !said.contains("Ctrl-C ends\n") {
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the capture ended: {said}");
            said.push(byte[0].into());
        }
        // What it says later must not fill the pipe.
        std::thread::spawn(move || drop(std::io::copy(&mut stderr, &mut std::io::sink())));
        Capture(Program(child))
    }

    /// A socket, and the one at [`PORT`] that it sends to, out of which nobody takes anything.
    fn sockets(&self) -> &(UdpSocket, UdpSocket) {
        self.sockets.get_or_init(|| {
            let bind = || (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind(("127.0.0.1", PORT)).unwrap());
            let (near, far) = self.namespace.enter(bind).unwrap();
            near.connect(far.local_addr().unwrap()).unwrap();
            (near, far)
        })
    }

    /// Sends `count` numbered datagrams.
    fn send(&self, count: u64) {
        let (near, _) = self.sockets();
        let mut payload = [0; PAYLOAD_BYTES];
        for number in 0..count {
            payload[..8].copy_from_slice(&number.to_be_bytes());
            assert_eq!(near.send(&payload).unwrap(), PAYLOAD_BYTES);
        }
    }

    /// Converts `from` to `to` and says what the command said.
    fn convert(&self, from: &[&str], to: &str, options: &[&str]) -> Value {
        let from: Vec<String> = from.iter().map(|name| self.path(name)).collect();
        let from: Vec<&str> = from.iter().map(String::as_str).collect();
        let to = self.path(to);
        let output = longhaul(&[&["convert", "-J"][..], options, &from[..], &[to.as_str()]].concat());
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    }

    fn analyse(&self, name: &str) -> Value {
        object(&longhaul(&["analyze", "--json", &self.path(name)]).stdout)
    }

    /// The numbers of the datagrams in a pcap or pcapng file.
    fn numbers(&self, name: &str) -> Vec<u64> {
        let mut reader = CaptureReader::new(File::open(self.path(name)).unwrap()).unwrap();
        let mut numbers = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            // Ethernet, IPv4, UDP.
            numbers.push(u64::from_be_bytes(record.snippet[42..50].try_into().unwrap()));
        }
        numbers
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Capture(Program);

impl Capture {
    fn signal(&self, name: &str) {
        let pid = self.0.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Ends it as Ctrl-C does, and gives its result.
    fn finish(mut self) -> Value {
        self.signal("-INT");
        let mut text = Vec::new();
        self.0.0.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(self.0.0.wait().unwrap().code(), Some(130));
        object(&text)
    }

    /// Waits for its own end.
    fn wait(mut self) -> Value {
        let mut text = Vec::new();
        self.0.0.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        assert!(self.0.0.wait().unwrap().success());
        object(&text)
    }
}

fn rows(path: &str) -> (Vec<Packet>, About) {
    let mut reader = HeaderLogReader::new(File::open(path).unwrap()).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            return (all, reader.about().unwrap());
        }
        all.extend_from_slice(&batch);
    }
}

fn count(result: &Value, key: &str) -> u64 {
    result["result"][key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"))
}

#[test]
fn every_packet_is_there_once_and_in_order() {
    let Some(host) = Host::new("every") else { return };
    let capture = host.capture(&["lo", "--port", &PORT.to_string()]);
    host.send(5000);
    capture.signal("-USR1");
    sleep(Duration::from_millis(300));
    let result = capture.finish();
    assert_eq!((count(&result, "seen_packets"), count(&result, "written_packets")), (5000, 5000), "{result}");
    assert_eq!(result["result"]["unaccounted_packets"], 0);
    assert_eq!(result["result"]["marks"].as_array().unwrap().len(), 1);

    let all: Vec<u64> = (0..5000).collect();
    for name in ["t.pcap", "t.pcapng"] {
        assert_eq!(count(&host.convert(&["spool"], name, &[]), "packets"), 5000);
        assert_eq!(host.numbers(name), all, "{name}");
    }
    // Through every form and back.
    host.convert(&["spool"], "t.parquet", &["--keep-snippets"]);
    host.convert(&["t.parquet"], "t.pcap.gz", &[]);
    host.convert(&["t.pcap.gz"], "t.pcapng.zst", &[]);
    host.convert(&["t.pcapng.zst"], "back.pcap", &[]);
    assert_eq!(fs::read(host.path("back.pcap")).unwrap(), fs::read(host.path("t.pcap")).unwrap());

    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!((packets.len(), about.ledger.seen_packets, about.marks.len(), about.sorted), (5000, 5000, 1, true));
    assert!(!about.was_cut);
    for packet in &packets {
        assert_eq!((packet.frame_len, packet.direction), (42 + PAYLOAD_BYTES as u32, InterfaceDirection::Inbound));
        assert!(matches!(packet.transport, Transport::Udp { dst_port: PORT, payload_len: 20, .. }), "{packet:?}");
    }
    // Without snippets there is nothing to write into a pcap.
    host.convert(&["spool"], "bare.parquet", &[]);
    let refused = longhaul(&["convert", &host.path("bare.parquet"), &host.path("no.pcap")]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("--keep-snippets"));
    assert!(!Path::new(&host.path("no.pcap")).exists() && !Path::new(&host.path("no.pcap.part")).exists());

    // In whatever form it is read, analysis finds the same.
    let found = host.analyse("spool")["result"].clone();
    assert_eq!(
        (&found["totals"]["packets"], found["flows"].as_array().map(Vec::len)),
        (&json!(5000), Some(1)),
        "{found}"
    );
    for name in ["t.parquet", "bare.parquet", "t.pcap", "t.pcapng.zst"] {
        assert_eq!(host.analyse(name)["result"], found, "{name}");
    }
}

/// Packets of both CPUs at the same time, into a ring each: all are there once, in order of their stamps, and counted where there was no
/// room for them.
#[test]
fn several_rings_are_one_capture() {
    const EACH: u64 = 20_000;
    let Some(host) = Host::new("rings") else { return };
    let port = PORT.to_string();
    let capture = host.capture(&["lo", "--port", &port, "--rings", "2", "--ring", "8M"]);
    host.sockets();
    let send = |times: u64| {
        let host = &host;
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                scope.spawn(move || {
                    // On a machine with one CPU both are there.
                    let _ = pin_to(&[cpu]);
                    let socket = host.namespace.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
                    let mut payload = [0; PAYLOAD_BYTES];
                    for number in 0..times * EACH {
                        payload[..8].copy_from_slice(&(cpu as u64 * times * EACH + number).to_be_bytes());
                        assert_eq!(socket.send_to(&payload, ("127.0.0.1", PORT)).unwrap(), PAYLOAD_BYTES);
                    }
                });
            }
        });
    };
    send(1);
    sleep(Duration::from_millis(300));
    // More than both rings hold.
    capture.signal("-STOP");
    send(3);
    capture.signal("-CONT");
    sleep(Duration::from_millis(300));
    let result = capture.finish();
    assert_eq!(result["parameters"]["rings"], 2);
    let (seen, written) = (count(&result, "seen_packets"), count(&result, "written_packets"));
    let dropped = result["result"]["dropped_by_place"]["kernel_ring"].as_u64().unwrap();
    assert_eq!((seen, written + dropped), (8 * EACH, 8 * EACH), "{result}");
    assert!(dropped > EACH, "{result}");
    host.convert(&["spool"], "t.pcap", &[]);
    let mut numbers = host.numbers("t.pcap");
    assert_eq!(numbers.len() as u64, written);
    let (first, _) = numbers.split_at_mut(2 * EACH as usize);
    first.sort_unstable();
    assert!(first.iter().copied().eq(0..2 * EACH), "of the first, each is there once");
    host.convert(&["spool"], "t.parquet", &[]);
    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!((packets.len() as u64, about.sorted, about.ledger.unaccounted_packets()), (written, true, 0));
    assert!(packets.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

/// A ring that few packets come into hands them over late, behind those of a busy one: they keep their places all the same.
#[test]
fn a_slow_ring_stays_in_order_with_a_busy_one() {
    let Some(host) = Host::new("uneven") else { return };
    let capture = host.capture(&["lo", "--port", &PORT.to_string(), "--rings", "2"]);
    host.sockets();
    let end = Instant::now() + Duration::from_secs(2);
    let send = |cpu: usize, at_once: u64, pause: Duration| {
        let host = &host;
        move || {
            // On a machine with one CPU both are there.
            let _ = pin_to(&[cpu]);
            let socket = host.namespace.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            let mut sent = 0;
            while Instant::now() < end {
                for _ in 0..at_once {
                    socket.send_to(&[0; PAYLOAD_BYTES], ("127.0.0.1", PORT)).unwrap();
                }
                sent += at_once;
                sleep(pause);
            }
            sent
        }
    };
    let sent: u64 = std::thread::scope(|scope| {
        let (few, many) = (send(0, 1, Duration::from_millis(2)), send(1, 200, Duration::from_millis(1)));
        let threads = [scope.spawn(few), scope.spawn(many)];
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    sleep(Duration::from_millis(300));
    let result = capture.finish();
    assert_eq!((count(&result, "seen_packets"), count(&result, "written_packets")), (sent, sent), "{result}");
    host.convert(&["spool"], "t.parquet", &[]);
    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!((packets.len() as u64, about.sorted), (sent, true));
    assert!(packets.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

/// The capture is stopped while more packets pass than its ring holds: the ledger has every one, and says when.
#[test]
fn the_ledger_is_exact_when_the_ring_overruns() {
    let Some(host) = Host::new("overrun") else { return };
    let capture = host.capture(&["lo", "--port", &PORT.to_string(), "--ring", "2M"]);
    host.send(1000);
    sleep(Duration::from_millis(200));
    capture.signal("-STOP");
    host.send(60_000);
    capture.signal("-CONT");
    sleep(Duration::from_millis(200));
    host.send(1000);
    sleep(Duration::from_millis(200));
    let result = capture.finish();
    let (seen, written) = (count(&result, "seen_packets"), count(&result, "written_packets"));
    let dropped = result["result"]["dropped_by_place"]["kernel_ring"].as_u64().unwrap();
    assert_eq!(seen, 62_000, "{result}");
    assert!(dropped > 10_000 && written + dropped == seen, "{result}");
    let gaps = result["result"]["gaps"].as_array().unwrap();
    assert_eq!(gaps.iter().map(|gap| gap["packets"].as_u64().unwrap()).sum::<u64>(), dropped);

    host.convert(&["spool"], "t.parquet", &[]);
    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!(packets.len() as u64, written);
    assert_eq!(about.ledger.dropped_packets.get(&DroppedAt::KernelRing), Some(&dropped));
    assert_eq!(about.ledger.unaccounted_packets(), 0);
    assert_eq!(about.ledger.gaps.iter().map(|gap| gap.packets).sum::<u64>(), dropped);

    let analysed = host.analyse("t.parquet");
    let caveat = analysed["caveats"].as_array().unwrap().iter().find(|caveat| caveat["code"] == "capture_dropped");
    let message = caveat.expect("analysis knows of the gaps")["message"].as_str().unwrap();
    assert!(message.contains(&format!("dropped {dropped} packets")) && message.contains("gaps from 20"), "{message}");
    assert!(message.contains("that time is left out"), "{message}");
    let found = &analysed["result"];
    assert!(found["totals"]["gaps"].as_u64() > Some(0) && found["totals"]["left_out_ns"].as_i64() > Some(0), "{found}");
    let of_flows = found["flows"].as_array().unwrap().iter().map(|flow| flow["forward"]["left_out_ns"].as_i64());
    assert!(of_flows.max().flatten() > Some(0), "{found}");
    // The spool tells of its gaps behind the packets around them; that makes no difference.
    assert_eq!(host.analyse("spool")["result"], *found);
}

#[test]
fn a_kill_loses_no_more_than_the_last_second() {
    let Some(host) = Host::new("kill") else { return };
    let mut capture = host.capture(&["lo", "--port", &PORT.to_string()]);
    host.send(3000);
    sleep(Duration::from_millis(1000));
    // Of these at most some are lost.
    host.send(500);
    capture.0.kill();
    let result = host.convert(&["spool"], "t.pcap", &[]);
    assert_eq!(result["result"]["was_cut"], true);
    let numbers = host.numbers("t.pcap");
    assert!(numbers.len() >= 3000 && numbers[..3000].iter().copied().eq(0..3000), "{}", numbers.len());
}

#[test]
fn a_full_disk_is_counted_and_said() {
    let Some(host) = Host::new("full") else { return };
    let spool = host.path("spool");
    fs::create_dir_all(&spool).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=2m none {spool} && {LONGHAUL} capture -J lo --port {PORT} -o {spool}; \
         code=$?; cp {spool}/*.spool {folder}; exit $code",
        folder = host.folder.display()
    );
    let mut capture = host.start(Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]));
    for _ in 0..40 {
        host.send(2000);
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(400));
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", capture.0.0.id())).unwrap();
    let child = child.split_whitespace().next().expect("the shell runs the capture").to_owned();
    assert!(Command::new("kill").args(["-INT", &child]).status().unwrap().success());
    let mut text = Vec::new();
    capture.0.0.stdout.take().unwrap().read_to_end(&mut text).unwrap();
    assert_eq!(capture.0.0.wait().unwrap().code(), Some(130));
    let result = object(&text);
    let (seen, written) = (count(&result, "seen_packets"), count(&result, "written_packets"));
    let disk = result["result"]["dropped_by_place"]["disk"].as_u64().unwrap();
    assert_eq!(seen, 80_000, "{result}");
    assert!(disk > 10_000 && written + disk == seen, "{result}");
    assert!(result["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "disk"), "{result}");

    // The file is whole, and has the account of what is not in it.
    let told = host.convert(&["00000001.spool"], "t.parquet", &[]);
    assert_eq!(told["result"]["was_cut"], false, "{told}");
    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!(packets.len() as u64, written);
    assert_eq!(
        (about.ledger.dropped_packets.get(&DroppedAt::Disk), about.ledger.unaccounted_packets()),
        (Some(&disk), 0)
    );
}

#[test]
fn the_oldest_files_go() {
    let Some(host) = Host::new("keep") else { return };
    let port = PORT.to_string();
    let capture = host.capture(&["lo", "--port", &port, "--roll-bytes", "1M", "--keep", "3M"]);
    for _ in 0..20 {
        host.send(5000);
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(300));
    let result = capture.finish();
    assert_eq!(count(&result, "written_packets"), 100_000, "{result}");
    assert!(count(&result, "files_removed") >= 3, "{result}");
    let files: Vec<u64> =
        fs::read_dir(host.path("spool")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
    assert!(files.iter().sum::<u64>() <= 3 << 20, "{files:?}");
    let told = host.convert(&["spool"], "t.pcap", &[]);
    assert_eq!(told["result"]["was_cut"], false);
    // The latest are there without a hole.
    let numbers = host.numbers("t.pcap");
    assert!(numbers.len() > 10_000 && *numbers.last().unwrap() == 4999);
    assert!(numbers.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 5000));
}

#[test]
fn two_interfaces_merge_in_order_and_tags_stay() {
    let Some(host) = Host::new("merge") else { return };
    let (left, right) = host
        .namespace
        .enter(|| {
            let mut netlink = Netlink::open().unwrap();
            let end = |name, mac| VethEnd { name, namespace: None, mtu_bytes: None, mac: Some([2, 0, 0, 0, 0, mac]) };
            netlink.create_veth(&end("va", 1), &end("vb", 2)).unwrap();
            let (left, right) = (netlink.index_of("va").unwrap(), netlink.index_of("vb").unwrap());
            netlink.set_up(left, true).unwrap();
            netlink.set_up(right, true).unwrap();
            (left, right)
        })
        .unwrap();
    let sockets =
        host.namespace.enter(|| [left, right].map(|at| PacketSocket::open(at, &PacketOptions::default()).unwrap()));
    let sockets = sockets.unwrap();
    sleep(Duration::from_millis(100));
    let capture = host.capture(&["va,vb", "--filter", "ether proto 0x88b5 or vlan"]);
    for number in 0..400_u16 {
        let tag: &[u8] = if number % 2 == 0 { &[0x81, 0, 0, 77] } else { &[] };
        let number = number.to_be_bytes();
        let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], tag, &[0x88, 0xb5], &number, &[0; 60]].concat();
        sockets[usize::from(number[1] % 3 == 0)].send(&[0; 10], &[&frame]).unwrap();
    }
    sleep(Duration::from_millis(300));
    let result = capture.finish();
    // Each frame leaves one interface and comes in by the other.
    assert_eq!(count(&result, "written_packets"), 800, "{result}");
    host.convert(&["spool"], "t.parquet", &[]);
    let (packets, about) = rows(&host.path("t.parquet"));
    assert_eq!((packets.len(), about.sorted), (800, true));
    assert_eq!(about.meta.interfaces.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>(), ["va", "vb"]);
    assert!(packets.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    assert_eq!(packets.iter().filter(|packet| packet.vlan[0] == Some(77)).count(), 400);
    for interface in [0, 1] {
        assert_eq!(packets.iter().filter(|packet| packet.interface == interface).count(), 400);
    }
    assert_eq!(packets.iter().filter(|packet| packet.direction == InterfaceDirection::Outbound).count(), 400);
    for packet in &packets {
        let tag = if packet.vlan[0].is_some() { 4 } else { 0 };
        assert_eq!((packet.frame_len, packet.eth_type), (76 + tag, 0x88b5), "{packet:?}");
    }
}

#[test]
fn super_packets_are_marked() {
    let Some(host) = Host::new("super") else { return };
    let capture = host.capture(&["lo", "--flow", &format!("127.0.0.1:{PORT}-127.0.0.1:7071")]);
    let sockets = host
        .namespace
        .enter(|| (UdpSocket::bind(("127.0.0.1", PORT)).unwrap(), UdpSocket::bind(("127.0.0.1", 7071)).unwrap()));
    let (near, far) = sockets.unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    nix::sys::socket::setsockopt(&near, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
    // Ten wire packets in one, the last of them short.
    near.send(&[1; 9_500]).unwrap();
    near.send(&[1; 700]).unwrap();
    sleep(Duration::from_millis(200));
    let result = capture.finish();
    assert_eq!((count(&result, "written_packets"), count(&result, "super_packets")), (2, 1), "{result}");
    assert!(result["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "super_packets"));
    host.convert(&["spool"], "t.parquet", &[]);
    let (packets, _) = rows(&host.path("t.parquet"));
    let marks: Vec<_> = packets.iter().map(|packet| (packet.gso_segs, packet.gso_size, packet.frame_len)).collect();
    assert_eq!(marks, [(10, 1000, 9_542), (1, 0, 742)]);
}

/// A virtual interface has no clock: the file and a caveat say whose stamps it has instead.
#[test]
fn an_interface_without_a_clock_is_told() {
    let Some(host) = Host::new("clock") else { return };
    let capture = host.capture(&["lo", "--port", &PORT.to_string(), "-k", "1", "--clock", "nic"]);
    host.send(1);
    let result = capture.wait();
    assert_eq!(result["result"]["interfaces"][0]["clock"], "kernel CLOCK_REALTIME", "{result}");
    let caveat = result["caveats"].as_array().unwrap().iter().find(|caveat| caveat["code"] == "no_nic_clock");
    assert!(caveat.is_some_and(|caveat| caveat["message"].as_str().unwrap().contains("lo")), "{result}");
}

#[test]
fn it_ends_by_itself() {
    let Some(host) = Host::new("ends") else { return };
    let capture = host.capture(&["lo", "--port", &PORT.to_string(), "-k", "100"]);
    host.send(300);
    let began = Instant::now();
    let result = capture.wait();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((count(&result, "seen_packets"), count(&result, "written_packets")), (100, 100), "{result}");
    // Another capture does not mix with it.
    let again: Output = host
        .namespace
        .enter(|| {
            Command::new(LONGHAUL).args(["capture", "lo", "-t", "1", "-o", &host.path("spool")]).output().unwrap()
        })
        .unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("already holds a capture"), "{again:?}");
}

#[test]
fn force_replaces_a_spool_once_the_new_capture_begins() {
    let Some(host) = Host::new("force") else { return };
    let port = PORT.to_string();
    let capture = host.capture(&["lo", "--port", &port]);
    host.send(50);
    sleep(Duration::from_millis(300));
    assert_eq!(count(&capture.finish(), "written_packets"), 50);
    let spool = host.path("spool");
    let kept = || fs::read(host.path("spool/00000001.spool")).unwrap();
    let before = kept();
    // It accepts connections and is no logging host.
    let listener = host.namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let to = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let refused = |words: &[&str]| {
        let words = [&["capture", "-J", "-t", "1s", "-o", &spool, "--force"][..], words].concat();
        let output = host.namespace.enter(|| Command::new(LONGHAUL).args(&words).output().unwrap()).unwrap();
        assert!(!output.status.success() && kept() == before, "{words:?}: {output:?}");
        object(&output.stdout)["error"]["message"].to_string()
    };
    let said = refused(&["longhaul-none"]);
    assert!(said.contains("interface longhaul-none"), "{said}");
    let said = refused(&["lo", "--to", &to, "--no-auth"]);
    assert!(said.contains("logging host 127.0.0.1"), "{said}");

    let capture = host.capture(&["lo", "--port", &port, "--force", "-k", "7"]);
    host.send(7);
    assert_eq!(count(&capture.wait(), "written_packets"), 7);
    assert_eq!(count(&host.convert(&["spool"], "t.pcap", &[]), "packets"), 7);
}

/// With tcpdump's own words: `-i any`, a count, a snap length, a file, a filter behind them. And `-` as standard input and output.
#[test]
fn a_file_is_written_and_read_as_tcpdump_would() {
    let Some(host) = Host::new("file") else { return };
    if Command::new("tcpdump").arg("--version").output().is_err() {
        longhaul_testing::no_judge!("tcpdump is not installed (make deps)");
        return;
    }
    let other = host.namespace.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    host.sockets();
    for (name, output) in [("w.pcapng", "-w"), ("o.pcap", "-o")] {
        let file = host.path(name);
        let words = ["capture", "-J", "-i", "any", "-c", "4", "-s", "60", output, &file, "udp", "port", "7070"];
        let capture = host.start(Command::new(LONGHAUL).args(words));
        for _ in 0..3 {
            // Nobody listens there; the filter leaves it out.
            let _ = other.send_to(&[7; PAYLOAD_BYTES], "127.0.0.1:7071");
        }
        host.send(4);
        let result = capture.wait();
        assert_eq!(result["parameters"]["interfaces"], json!(["lo"]), "{result}");
        assert_eq!(result["parameters"]["filter"], "udp port 7070", "{result}");
        assert_eq!(host.numbers(name).len(), 4);
        let again = host.namespace.enter(|| Command::new(LONGHAUL).args(words).output().unwrap()).unwrap();
        assert_eq!(object(&again.stdout)["error"]["code"], "not_written", "{again:?}");
        assert!(host.numbers(name).iter().all(|number| *number < 4), "{:?}", host.numbers(name));
        let read = |arguments: &[&str]| {
            let stdin = Stdio::from(File::open(&file).unwrap());
            Command::new(LONGHAUL).args(arguments).stdin(stdin).output().unwrap()
        };
        let analyzed = read(&["analyze", "-J", "-"]);
        assert!(analyzed.status.success(), "{analyzed:?}");
        let converted = read(&["convert", "-", "-"]);
        assert!(converted.stdout.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "{converted:?}");
    }
    // No spool is left.
    let left: Vec<_> = fs::read_dir(&host.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn packets_go_to_stdout_as_they_come() {
    let Some(host) = Host::new("stdout") else { return };
    host.sockets();
    let metrics = host.path("capture.prom");
    let words = ["capture", "lo", "-s", "60", "-w", "-", "-t", "20s", "-i", "100ms", "--prometheus", &metrics];
    let began = Instant::now();
    let mut capture = host.start(Command::new(LONGHAUL).args(words));
    let mut stdout = capture.0.0.stdout.take().unwrap();
    let mut section = [0; 4];
    stdout.read_exact(&mut section).unwrap();
    assert_eq!(section, [0x0a, 0x0d, 0x0d, 0x0a]);
    host.send(3);
    // A snippet of 60 bytes makes a block of 88 or more: they come while the capture runs.
    let mut came = [0; 3 * 88];
    stdout.read_exact(&mut came).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "they came at the end");
    sleep(Duration::from_millis(300));
    let shown = fs::read_to_string(&metrics).unwrap();
    assert!(shown.contains("longhaul_capture_packets{") && shown.contains("l2_rate_bits_per_second"), "{shown}");
    // Nobody reads any more: the capture ends by itself.
    drop(stdout);
    host.send(5);
    assert!(capture.0.0.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(15), "it went on without a reader");
    let left: Vec<_> = fs::read_dir(&host.folder).unwrap().collect();
    assert!(left.is_empty(), "neither a spool nor metrics: {left:?}");
}

/// The link leaves an error at the socket, which would wake a reader that waits again and again.
#[test]
fn a_link_that_went_down_takes_no_cpu() {
    let Some(host) = Host::new("down") else { return };
    let capture = host.capture(&["lo"]);
    let set_up = |up| host.namespace.enter(|| Netlink::open().unwrap().set_up(1, up).unwrap()).unwrap();
    // Of all threads, hundredths of a second (proc_pid_stat(5), fields 14 and 15).
    let cpu_time = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", capture.0.0.id())).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
        fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    };
    for up in [false, true] {
        set_up(up);
        sleep(Duration::from_millis(200));
        let before = cpu_time();
        sleep(Duration::from_secs(1));
        let took = cpu_time() - before;
        assert!(took < 30, "{took} of 100, up: {up}");
    }
    // It goes on.
    host.send(10);
    sleep(Duration::from_millis(200));
    let result = capture.finish();
    assert!(count(&result, "written_packets") >= 10, "{result}");
}
