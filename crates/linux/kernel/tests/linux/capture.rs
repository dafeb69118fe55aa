//! Capture rings: several on one interface share what passes.

use std::net::UdpSocket;
use std::thread;

use longhaul_kernel::capture_ring::{CaptureOptions, CaptureRing, RingStatistics};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::{allowed_cpus, pin_to};
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_units::Nanos;

use crate::cable::unprivileged;

const PORT: u16 = 7075;

/// Each CPU's packets come into the ring of that CPU, all of them and none twice; on loopback without the way out.
#[test]
fn rings_of_a_group_share_by_cpu() {
    if unprivileged() {
        return;
    }
    let cpus = allowed_cpus().unwrap();
    let [first, second, ..] = cpus[..] else {
        longhaul_testing::skipped!("takes two CPUs");
        return;
    };
    let host = NetNamespace::create().unwrap();
    host.enter(|| Netlink::open().unwrap().set_up(1, true).unwrap()).unwrap();
    let options = CaptureOptions {
        ring_bytes: 4 << 20,
        // Long enough that blocks are not handed over half empty before anybody reads: four of them hold all.
        block_timeout_ms: 200,
        filter: SocketFilter::port(PORT, 96),
        promiscuous: false,
        nic_stamps: false,
    };
    let mut rings = host.enter(|| CaptureRing::open_several(1, &options, 2).unwrap()).unwrap();
    assert_eq!(rings.len(), 2);
    let send = |cpu: usize, count: u64| {
        let host = &host;
        move || {
            pin_to(&[cpu]).unwrap();
            let socket = host.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            for _ in 0..count {
                // Nobody has the port: what comes back says so.
                let _ = socket.send_to(&[1; 20], ("127.0.0.1", PORT));
            }
        }
    };
    let counts = [(first, 3_000), (second, 2_000)];
    thread::scope(|scope| {
        for (cpu, count) in counts {
            scope.spawn(send(cpu, count));
        }
    });
    let deadline = monotonic() + Nanos::from_secs(5);
    let mut read = [0; 2];
    // As the kernel numbers them: CPU modulo rings.
    while monotonic() < deadline && read[first % 2] + read[second % 2] < 5_000 {
        for (ring, read) in rings.iter_mut().zip(&mut read) {
            while let Some(block) = ring.next_block() {
                *read += u64::from(block.packets());
            }
        }
    }
    for (cpu, count) in counts {
        let statistics = rings[cpu % 2].statistics();
        assert_eq!(statistics, RingStatistics { seen: count, dropped: 0 }, "CPU {cpu}");
        assert_eq!(read[cpu % 2], count, "CPU {cpu}");
    }
}
