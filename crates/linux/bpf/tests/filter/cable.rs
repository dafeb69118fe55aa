//! A host to be filtered, and the other end of its cable, from which only a test's own frames come.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use longhaul_bpf::filter::{Filter, FilterCounters, FilterOptions, Generations, Judgement};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::sysctl;
use longhaul_units::Nanos;

use crate::frames::{OUR_IP, OUR_IPV6, OUR_MAC, PEER_MAC};

pub(crate) const LINK: &str = "lhf-h";

pub(crate) struct Cable {
    pub(crate) host: NetNamespace,
    pub(crate) ifindex: u32,
    /// Sends frames to the host.
    pub(crate) peer: PacketSocket,
    // After the socket.
    _far: NetNamespace,
}

/// Everything judged, as on a host that forwards nothing.
pub(crate) const ALL: Judgement = Judgement { ipv4: true, ipv6: true, arp: true, solicitations: true };

impl Cable {
    /// `None` where that cannot be, and says why.
    pub(crate) fn lay() -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
            return None;
        }
        let (host, far) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let end = |name, namespace, mac| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: Some(mac) };
        let mut theirs = far.enter(Netlink::open).unwrap().unwrap();
        theirs.create_veth(&end("lhf-p", &far, PEER_MAC), &end(LINK, &host, OUR_MAC)).unwrap();
        // The other end says nothing by itself.
        far.enter(|| sysctl::write("net.ipv6.conf.lhf-p.disable_ipv6", "1")).unwrap().unwrap();
        let mut ours = host.enter(Netlink::open).unwrap().unwrap();
        let (ifindex, peer_index) = (ours.index_of(LINK).unwrap(), theirs.index_of("lhf-p").unwrap());
        let loopback = ours.index_of("lo").unwrap();
        ours.set_up(loopback, true).unwrap();
        ours.set_up(ifindex, true).unwrap();
        for (ip, prefix_bits) in [(OUR_IP.into(), 24), (OUR_IPV6.into(), 64)] {
            ours.add_address(&Address { ifindex, ip, prefix_bits }).unwrap();
        }
        theirs.set_up(peer_index, true).unwrap();
        let deadline = monotonic() + Nanos::from_secs(5);
        assert!(ours.wait_until_ready(ifindex, deadline).unwrap());
        assert!(theirs.wait_until_ready(peer_index, deadline).unwrap());
        let options = PacketOptions { promiscuous: false, ..PacketOptions::default() };
        let peer = far.enter(|| PacketSocket::open(peer_index, &options)).unwrap().unwrap();
        let cable = Self { host, ifindex, peer, _far: far };
        cable.settle();
        Some(cable)
    }

    /// Waits until the link-local address is no longer tentative: it is the last thing that changes by itself.
    fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let settled = || {
            let table = self.inside(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap());
            // Flags are the fifth column; 0x40 is tentative.
            let mut links = table.lines().filter(|line| line.ends_with(LINK) && line.starts_with("fe80"));
            links.any(|line| u8::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap() & 0x40 == 0)
        };
        while !settled() {
            assert!(Instant::now() < deadline, "the link-local address is tentative for good");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.host.enter(work).unwrap()
    }

    /// A filter that knows the host's addresses.
    pub(crate) fn filter(&self, options: &FilterOptions) -> Filter {
        let filter = self.inside(|| Filter::attach(self.ifindex, options)).unwrap();
        self.tell(&filter);
        filter
    }

    /// Tells a filter of the host's addresses, as whoever follows it does.
    pub(crate) fn tell(&self, filter: &Filter) {
        self.inside(|| {
            let generations = Generations::load().unwrap().now().unwrap();
            let local = Netlink::open().unwrap().local_networks().unwrap();
            filter.follow(&local, ALL, generations).unwrap();
        });
    }

    pub(crate) fn send(&self, frame: &[u8], times: usize) {
        for _ in 0..times {
            self.peer.send(&[0; 10], &[frame]).unwrap();
        }
    }

    /// The host's own addresses.
    pub(crate) fn add_address(&self, ip: IpAddr, prefix_bits: u8) {
        let address = Address { ifindex: self.ifindex, ip, prefix_bits };
        self.inside(|| Netlink::open().unwrap().add_address(&address)).unwrap();
    }
}

/// Counters once they count `packets` in all.
pub(crate) fn counted(filter: &Filter, packets: u64) -> FilterCounters {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let counters = filter.counters().unwrap();
        let seen = counters.total().all().packets;
        if seen >= packets {
            assert_eq!(seen, packets, "more than was sent");
            return counters;
        }
        assert!(Instant::now() < deadline, "{seen} of {packets} frames were counted");
        std::thread::sleep(Duration::from_millis(2));
    }
}
