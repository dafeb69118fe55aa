//! Nothing is leaked. Alone in its file: descriptors are counted for the whole process.

use std::fs;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::packet_ring::RxRing;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn two_hundred_labs_leave_no_descriptor() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
        return;
    }
    let options = PacketOptions { receive_buffer_bytes: 1 << 16, send_buffer_bytes: 1 << 16, promiscuous: true };
    let before = descriptors();
    for i in 0..200 {
        let (left, right) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let mut netlink = left.enter(Netlink::open).unwrap().unwrap();
        let end = |name, namespace| VethEnd { name, namespace, mtu_bytes: None, mac: None };
        netlink.create_veth(&end("lhk-a", None), &end("lhk-b", Some(&right))).unwrap();
        let index = netlink.index_of("lhk-a").unwrap();
        netlink.set_up(index, true).unwrap();
        // The kernel takes tens of milliseconds to close these, so not each time.
        if i % 10 == 0 {
            let _socket = left.enter(|| PacketSocket::open(index, &options)).unwrap().unwrap();
            let _ring = left.enter(|| RxRing::open(index, 1518, 32, &options)).unwrap().unwrap();
        }
        left.cookie().unwrap();
    }
    assert_eq!(descriptors(), before);
}
