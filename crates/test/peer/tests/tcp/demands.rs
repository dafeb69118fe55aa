//! Clients that ask a server for more than it gives.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::tcp::available_congestion_controls;
use longhaul_peer::client::{self, Target};
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_result::Caveat;
use longhaul_session::Caps;
use longhaul_tcp::{CongestionStep, MAX_SAMPLES, Sample, Series, TcpEndReport, TcpParameters};
use longhaul_terms::TestDirection;
use longhaul_units::Bytes;

use crate::hosts::{Process, able, options, serving_process_at, until};
use crate::support::{bytes, millis};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Memory of a process and of its files in memory, KiB.
fn memory_kib(process: &Process) -> u64 {
    let files = fs::read_dir(format!("/proc/{}/fd", process.child.0.id())).unwrap().flatten().map(|file| file.path());
    let is_in_memory = |name: PathBuf| name.starts_with("/memfd:longhaul (deleted)");
    let in_memory = files.filter(|file| fs::read_link(file).is_ok_and(is_in_memory));
    // Of 512 bytes.
    let blocks: u64 = in_memory.filter_map(|file| fs::metadata(file).ok()).map(|file| file.blocks()).sum();
    process.holds().2 as u64 + blocks / 2
}

/// Each of 64 flows with a block of 16 MiB of its own would be 1 GiB, and as much in files to be sent without a copy.
#[test]
fn all_flows_of_a_server_write_one_block() {
    let (server, address) = serving_process_at(&NetNamespace::current().unwrap(), &[], LOOPBACK, None);
    for zerocopy in [false, true] {
        let over = AtomicBool::new(false);
        let (end, most_kib) = std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(memory_kib(&server));
                    std::thread::sleep(Duration::from_millis(5));
                }
                most
            });
            let asked = TcpParameters {
                direction: TestDirection::Reverse,
                streams: 64,
                block_bytes: 16 << 20,
                zerocopy,
                ..millis(500)
            };
            let end = client::run(&Target::at(address, None), asked, None, |_| {});
            over.store(true, Ordering::Relaxed);
            (end, watching.join().unwrap())
        });
        assert_eq!(end.unwrap().remote.unwrap().tcp.unwrap().streams.len(), 64);
        let file_kib = if zerocopy { 16 << 10 } else { 0 };
        assert!((file_kib + 1..100_000 + file_kib).contains(&most_kib), "{most_kib} KiB, without a copy: {zerocopy}");
        until("the memory of the test to be given back", || memory_kib(&server) < 60_000);
    }
}

/// To load one changes the host: for its kernel, and for all who ask for that name later.
#[test]
fn a_server_that_keeps_its_settings_loads_no_congestion_control() {
    if !able() {
        return;
    }
    let serve = |host_settings| {
        let caps = Caps { host_settings, ..Caps::default() };
        let server = Server::bind(SocketAddr::new(LOOPBACK, 0), ServeOptions { caps, ..options(None) }).unwrap();
        let address = server.address().unwrap();
        // It ends with the process.
        std::thread::spawn(move || server.run(None, false, |_| {}));
        move |name: &str| {
            let congestion = vec![CongestionStep { name: name.into(), duration_ns: None }];
            let asked = TcpParameters { direction: TestDirection::Reverse, congestion, ..bytes(10_000) };
            client::run(&Target::at(address, None), asked, None, |_| {})
        }
    };
    let refusing = serve(false);
    let missing = ["lh_yeah_l", "lh_bic_l"]
        .into_iter()
        .find(|name| !available_congestion_controls().iter().any(|known| known == name));
    let missing = missing.expect("a control that nobody loaded");
    let refused = refusing(missing).map(|_| ()).unwrap_err();
    assert_eq!(refused.code, "not_granted");
    assert!(refused.message.contains("reno") && refused.remedy.contains("`host_settings`"), "{refused:?}");
    assert!(!available_congestion_controls().iter().any(|known| known == missing));
    refusing("reno").unwrap();
    serve(true)(missing).unwrap();
}

/// 1,000 samples a second of eight flows, at a server with 1 MiB for a test: it keeps one of several, and says so. The client keeps all.
#[test]
fn samples_take_no_more_of_a_server_than_its_memory_for_a_test() {
    let memory = Bytes(1 << 20);
    let caps = Caps { memory, ..Caps::default() };
    let server = Server::bind(SocketAddr::new(LOOPBACK, 0), ServeOptions { caps, ..options(None) }).unwrap();
    let address = server.address().unwrap();
    // It ends with the process.
    std::thread::spawn(move || server.run(None, false, |_| {}));
    let asked = TcpParameters {
        streams: 8,
        sample_ns: 1_000_000,
        keep_samples: true,
        pace_bps: Some(20_000_000),
        ..millis(2_000)
    };
    let end = client::run(&Target::at(address, None), asked, None, |_| {}).unwrap();
    let remote = end.remote.unwrap();
    let kept = |report: &TcpEndReport| {
        let texts = report.streams.iter().filter_map(|stream| stream.samples.as_deref());
        texts.map(|text| Series::from_text(text, MAX_SAMPLES).unwrap().samples().len()).sum::<usize>()
    };
    let most = memory.0 as usize / 4 / size_of::<Sample>();
    let (client, server) = (kept(end.local.tcp.as_ref().unwrap()), kept(remote.tcp.as_ref().unwrap()));
    // Eight flows of 2 s, on a machine that may have little time for them.
    assert!(client > most && (1..=most).contains(&server), "{client} at the client, {server} of {most} at the server");
    let said = |caveats: &[Caveat]| caveats.iter().any(|caveat| caveat.code == "samples_thinned");
    assert!(said(&remote.caveats) && !said(&end.local.caveats), "{:?}", remote.caveats);
}
