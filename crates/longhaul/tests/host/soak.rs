//! `serve` under hostile and good clients together: the good ones are always served, and its memory stays as it is.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::{alone, side_by_side};
use crate::world::{Random, SERVER, World, said};
use longhaul_channel::{Channel, Key, Role};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_peer::listening::CONNECTIONS_MOST;
use longhaul_session::Message;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

/// How long it takes; `LONGHAUL_SOAK_SECONDS` asks for more.
const TIME: Duration = Duration::from_secs(5);
/// Connections that one hostile act holds: more than there are seats.
const CROWD: usize = CONNECTIONS_MOST + 8;
/// Where hostile connections come from; good clients have another address of the same host.
const HOSTILE: &str = "10.96.0.3:0";
/// The most memory that the server may take, whatever strangers do: 192 connections and as many that are ending, with their threads, each with a heap
/// of its own that fills in the first half minute. In an hour it took 112 MiB at most.
const MEMORY_KIB: u64 = 144 << 10;
/// From this time on it must have come to an end with that.
const SETTLED: Duration = Duration::from_secs(60);
/// What the memory of the second half may then be above that of the first: what the allocator keeps.
const ALLOWANCE_KIB: u64 = 4 << 10;
/// Ports out of which the server's tests have theirs (net.ipv4.ip_local_port_range).
const DATA_PORTS: std::ops::Range<u64> = 32_768..61_000;

fn time() -> Duration {
    let asked = std::env::var("LONGHAUL_SOAK_SECONDS").ok();
    asked.map_or(TIME, |seconds| Duration::from_secs(seconds.parse().expect("LONGHAUL_SOAK_SECONDS is a number")))
}

/// What good clients do, in turn.
const TESTS: [&str; 7] = [
    "udp 10.96.0.1 -p 7001 --key KEY -b 5M -t 50ms -J",
    "tcp 10.96.0.1 -p 7001 --key KEY -t 50ms -J",
    "udp 10.96.0.1 -p 7001 --key KEY -b 5M -t 50ms -R -P 4 -J",
    "tcp 10.96.0.1 -p 7001 --key KEY -t 50ms -R -P 4 -J",
    "tcp 10.96.0.1 -p 7001 --key KEY -t 50ms --bidir -J",
    "udp 10.96.0.1 -p 7001 --key KEY -b 5M -t 50ms --softirq same -J",
    "rtt 10.96.0.1 -p 7001 --key KEY -i 10ms -c 5 -J",
];

/// A connection from the hostile address; `None` where the server does not take it.
fn connected(port: u16) -> Option<TcpStream> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let own: SocketAddr = HOSTILE.parse().unwrap();
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(own)).ok()?;
    let server: SocketAddr = SERVER.parse().unwrap();
    let server = SocketAddr::new(server.ip(), port);
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(server)).ok()?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    Some(stream)
}

fn port() -> u16 {
    SERVER.parse::<SocketAddr>().unwrap().port()
}

/// The rest of what a stranger sends after it connected: a reset, in place of an orderly end.
fn reset(stream: &TcpStream) {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    let _ = setsockopt(&stream.as_fd(), sockopt::Linger, &at_once);
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.next() % most).map(|_| random.next() as u8).collect()
}

/// The first message of a handshake: what an eavesdropper has.
fn recorded(key: &Key, random: &mut Random) -> Vec<u8> {
    let mut channel = Channel::<Message>::keyed(Role::Client, key, seed(random));
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(more) = channel.poll_transmit() {
        bytes.extend(more);
    }
    // The server's preamble is known to all.
    let _ = channel.handle_bytes(b"longhaul/1 keyed");
    while let Some(more) = channel.poll_transmit() {
        bytes.extend(more);
    }
    bytes
}

fn seed(random: &mut Random) -> [u8; 32] {
    std::array::from_fn(|_| random.next() as u8)
}

/// A client that has the key, or `None` where the server does not take it, and says `words` by its channel.
fn keyed(key: &Key, random: &mut Random, words: &[Message]) -> Option<()> {
    let mut stream = connected(port())?;
    let mut channel = Channel::<Message>::keyed(Role::Client, key, seed(random));
    words.iter().for_each(|message| _ = channel.send(message));
    let mut buffer = [0; 4096];
    for _ in 0..4 {
        while let Some(bytes) = channel.poll_transmit() {
            stream.write_all(&bytes).ok()?;
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        channel.handle_bytes(&buffer[..count]).ok()?;
    }
    Some(())
}

/// A hostile act, by number; each ends by itself.
fn act(which: u64, key: &Key, other: &Key, replay: &[u8], random: &mut Random) -> Option<()> {
    match which {
        // Many at once, that say nothing.
        0 => {
            let held: Vec<_> = (0..CROWD).map_while(|_| connected(port())).collect();
            sleep(Duration::from_millis(random.next() % 300));
            held.iter().step_by(2).for_each(reset);
        }
        1 => {
            let mut stream = connected(port())?;
            stream.write_all(&noise(random, 5000)).ok()?;
            reset(&stream);
        }
        2 => {
            let mut stream = connected(port())?;
            stream.write_all(b"longhaul/1 keyed").ok()?;
            stream.write_all(&noise(random, 200)).ok()?;
            sleep(Duration::from_millis(random.next() % 50));
        }
        // Recorded handshakes.
        3 => {
            let held: Vec<_> = (0..CROWD).map_while(|_| connected(port())).collect();
            held.iter().for_each(|mut stream| _ = stream.write_all(replay));
            sleep(Duration::from_millis(random.next() % 200));
        }
        4 => keyed(other, random, &[])?,
        // Who has the key and says what none of a client's words is.
        5 => keyed(key, random, &[Message::LogLink { text: "x".repeat(1 << 16) }])?,
        // A message that never ends, byte by byte.
        6 => {
            let mut stream = connected(port())?;
            for byte in replay.iter().take(40) {
                stream.write_all(&[*byte]).ok()?;
                sleep(Duration::from_millis(1));
            }
        }
        // Ports of tests.
        _ => {
            let address: IpAddr = SERVER.parse::<SocketAddr>().unwrap().ip();
            let socket = UdpSocket::bind(HOSTILE).ok()?;
            for _ in 0..200 {
                let port = DATA_PORTS.start + random.next() % (DATA_PORTS.end - DATA_PORTS.start);
                let _ = socket.send_to(&noise(random, 100), (address, port as u16));
                drop(connected(port as u16));
            }
        }
    }
    Some(())
}

/// The server's memory in KiB, its descriptors and its threads.
fn size(pid: u32) -> (u64, usize, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (resident.trim().trim_end_matches(" kB").parse().unwrap(), count("fd"), count("task"))
}

#[test]
fn good_clients_are_served_beside_hostile_ones() {
    let machine = alone();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
        return;
    }
    let world = World::new("soak");
    let pid = world.server.as_ref().unwrap().0.id();
    let key: Key = fs::read_to_string(world.path("key")).unwrap().parse().unwrap();
    let mut random = Random(u64::from(std::process::id()) << 20 | 1);
    let other = Key::from_random(seed(&mut random)).unwrap();
    let replay = recorded(&key, &mut random);
    // All paths of the server are warm.
    for test in TESTS {
        let mut client = world.spawn("near", &world.words(test, 0));
        assert!(client.wait().unwrap().success(), "{test}");
    }
    let before = size(pid);
    let (over, acts) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut sizes, mut longest, mut tests) = (Vec::new(), Duration::ZERO, 0_u64);
    let (key, other, replay, over, acts) = (&key, &other, &replay[..], &over, &acts);
    let began = Instant::now();
    thread::scope(|scope| {
        for number in 0..2_u64 {
            let mut random = Random(random.next() | 1);
            let near = &world.near;
            scope.spawn(move || {
                near.enter(|| {
                    while !over.load(Ordering::Relaxed) {
                        act(random.next() % 8, key, other, replay, &mut random);
                        acts.fetch_add(1, Ordering::Relaxed);
                        // Half of a CPU is enough to be hostile; the good ones measure.
                        sleep(Duration::from_millis(5 + number));
                    }
                })
                .unwrap();
            });
        }
        // Whatever fails below, the others end.
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while began.elapsed() < time() {
                let words = world.words(TESTS[tests as usize % TESTS.len()], 0);
                let start = Instant::now();
                let mut client = world.near.enter(|| {
                    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul"));
                    command.args(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
                });
                let output = client.as_mut().unwrap().wait().unwrap();
                let said = said(client.unwrap().stderr.unwrap());
                assert!(output.success(), "after {tests} tests in {:?}: {}: {said}", began.elapsed(), words.join(" "));
                longest = longest.max(start.elapsed());
                tests += 1;
                sizes.push(size(pid));
            }
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = served {
            std::panic::resume_unwind(panic);
        }
    });
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let most = |sizes: &[(u64, usize, usize)]| sizes.iter().map(|size| size.0).max().unwrap_or(0);
    let tenths: Vec<u64> = sizes.chunks(sizes.len().div_ceil(10).max(1)).map(|tenth| most(tenth) >> 10).collect();
    println!(
        "{tests} tests were served in {:?}, the longest in {longest:?}, beside {} hostile acts; memory: {} MiB before, in tenths of the time at \
         most {tenths:?}",
        began.elapsed(),
        acts.load(Ordering::Relaxed),
        before.0 >> 10,
    );
    assert!(tests > 0 && most(&sizes) < MEMORY_KIB, "{tenths:?}");
    assert!(time() < SETTLED || most(second) <= most(first) + ALLOWANCE_KIB, "{tenths:?}");
    // Strangers have 20 s at most, in which others may use the machine.
    drop(machine);
    let _shared = side_by_side();
    let deadline = Instant::now() + Duration::from_secs(30);
    while size(pid).1 > before.1 || size(pid).2 > before.2 {
        assert!(Instant::now() < deadline, "descriptors and threads: {before:?} before, {:?} now", size(pid));
        sleep(Duration::from_millis(50));
    }
}
