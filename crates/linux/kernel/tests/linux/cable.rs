//! Two hosts with a cable between them, and frames that nothing else would send.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket, Received};
use longhaul_kernel::sysctl;
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

/// EtherType for local experiments (IEEE 802), which no stack answers.
pub(crate) const EXPERIMENT: u16 = 0x88b5;
pub(crate) const LEFT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const RIGHT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const LEFT_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const RIGHT_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// No offload left to do.
pub(crate) const PLAIN: [u8; 10] = [0; 10];

/// Runs `ip` in a namespace.
pub(crate) fn ip(namespace: &NetNamespace, words: &str) {
    let output = namespace.enter(|| Command::new("ip").args(words.split(' ')).output()).unwrap().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the test must be skipped; says why.
pub(crate) fn unprivileged() -> bool {
    let skip = !is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
    }
    skip
}

/// A host without IPv6, whose own chatter would be in the way.
pub(crate) fn silent_host() -> NetNamespace {
    let host = NetNamespace::create().unwrap();
    host.enter(|| {
        for key in ["net.ipv6.conf.default.disable_ipv6", "net.ipv6.conf.all.disable_ipv6"] {
            // A kernel without IPv6 has no such key and needs none.
            let _ = sysctl::write(key, "1");
        }
    })
    .unwrap();
    host
}

/// `lhk-l` on the left host, `lhk-r` on the right one.
pub(crate) struct Cable {
    pub(crate) left: NetNamespace,
    pub(crate) right: NetNamespace,
    pub(crate) left_index: u32,
    pub(crate) right_index: u32,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let (left, right) = (silent_host(), silent_host());
        let (left_index, right_index) = connect(&left, &right, "lhk-l", "lhk-r");
        Self { left, right, left_index, right_index }
    }

    /// Packet sockets at both ends.
    pub(crate) fn sockets(&self) -> (PacketSocket, PacketSocket) {
        (socket_in(&self.left, self.left_index), socket_in(&self.right, self.right_index))
    }

    /// Gives both ends their addresses, and each the other as a neighbour, so that nobody asks.
    pub(crate) fn address(&self) {
        let ends = [
            (&self.left, self.left_index, LEFT_IP, RIGHT_IP, RIGHT_MAC),
            (&self.right, self.right_index, RIGHT_IP, LEFT_IP, LEFT_MAC),
        ];
        for (host, index, own, other, mac) in ends {
            address(host, index, own, other, mac);
        }
    }
}

/// A cable between two hosts; gives the indices of its ends. MAC addresses are those of left and right.
pub(crate) fn connect(left: &NetNamespace, right: &NetNamespace, left_name: &str, right_name: &str) -> (u32, u32) {
    let end = |name, namespace, mac| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: Some(mac) };
    let mut netlink = left.enter(Netlink::open).unwrap().unwrap();
    netlink.create_veth(&end(left_name, left, LEFT_MAC), &end(right_name, right, RIGHT_MAC)).unwrap();
    let mut far = right.enter(Netlink::open).unwrap().unwrap();
    let (left_index, right_index) = (netlink.index_of(left_name).unwrap(), far.index_of(right_name).unwrap());
    netlink.set_up(left_index, true).unwrap();
    far.set_up(right_index, true).unwrap();
    let deadline = monotonic() + Nanos::from_secs(5);
    assert!(netlink.wait_until_ready(left_index, deadline).unwrap());
    assert!(far.wait_until_ready(right_index, deadline).unwrap());
    (left_index, right_index)
}

pub(crate) fn address(host: &NetNamespace, ifindex: u32, own: Ipv4Addr, other: Ipv4Addr, mac: [u8; 6]) {
    let mut netlink = host.enter(Netlink::open).unwrap().unwrap();
    netlink.add_address(&Address { ifindex, ip: IpAddr::V4(own), prefix_bits: 24 }).unwrap();
    netlink.add_permanent_neighbour(ifindex, IpAddr::V4(other), mac).unwrap();
}

pub(crate) fn socket_in(host: &NetNamespace, ifindex: u32) -> PacketSocket {
    host.enter(|| PacketSocket::open(ifindex, &PacketOptions::default())).unwrap().unwrap()
}

/// A frame from left to right with `payload` behind `ether_type`.
pub(crate) fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&RIGHT_MAC);
    frame.extend_from_slice(&LEFT_MAC);
    frame.extend_from_slice(&ether_type.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `frame` with an 802.1Q tag put in by hand.
pub(crate) fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let mut with_tag = frame[..12].to_vec();
    with_tag.extend_from_slice(&0x8100_u16.to_be_bytes());
    with_tag.extend_from_slice(&tci.to_be_bytes());
    with_tag.extend_from_slice(&frame[12..]);
    with_tag
}

/// The next frame; fails after five seconds.
pub(crate) fn next_frame(socket: &PacketSocket) -> (Received, Vec<u8>) {
    let deadline = monotonic() + Nanos::from_secs(5);
    let mut buffer = vec![0; 1 << 17];
    loop {
        if let Some(received) = socket.receive(&mut buffer).unwrap() {
            buffer.truncate(received.frame_bytes);
            return (received, buffer);
        }
        assert!(readable_until(socket, Some(deadline)).unwrap() || monotonic() < deadline, "no frame came");
    }
}

/// A UDP socket that hands the stack `UDP_SEGMENT` super-packets of `segment_bytes` pieces.
pub(crate) fn segmenting_socket(host: &NetNamespace, own: Ipv4Addr, segment_bytes: i32) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind((own, 0))).unwrap().unwrap();
    // SAFETY: the option takes an int, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const segment_bytes).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    socket
}
