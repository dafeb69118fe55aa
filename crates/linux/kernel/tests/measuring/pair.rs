//! A sender on the left host of a cable and a receiver on the right one, over IPv4 or IPv6.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Address, Netlink};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SendBatch, SenderOptions, UdpReceiver, UdpSender, Unsent};
use longhaul_units::Nanos;

use crate::cable::{Cable, LEFT_IP, LEFT_MAC, RIGHT_IP, RIGHT_MAC};

pub(crate) const LEFT_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 1);
pub(crate) const RIGHT_IP6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 2);
const PORT: u16 = 5210;

/// Gives both ends of the cable IPv6 addresses; `false` where the kernel has no IPv6.
pub(crate) fn address_v6(cable: &Cable) -> bool {
    let ends = [
        (&cable.left, "lhk-l", cable.left_index, LEFT_IP6, RIGHT_IP6, RIGHT_MAC),
        (&cable.right, "lhk-r", cable.right_index, RIGHT_IP6, LEFT_IP6, LEFT_MAC),
    ];
    ends.into_iter().all(|(host, link, ifindex, own, other, mac)| {
        let key = format!("net.ipv6.conf.{link}.disable_ipv6");
        if let Err(error) = host.enter(|| sysctl::write(&key, "0")).unwrap() {
            longhaul_testing::skipped!("{error}");
            return false;
        }
        let mut netlink = host.enter(Netlink::open).unwrap().unwrap();
        netlink.add_address(&Address { ifindex, ip: IpAddr::V6(own), prefix_bits: 64 }).unwrap();
        netlink.add_permanent_neighbour(ifindex, IpAddr::V6(other), mac).unwrap();
        true
    })
}

pub(crate) struct Pair {
    pub(crate) cable: Cable,
    pub(crate) sender: UdpSender,
    pub(crate) receiver: UdpReceiver,
}

impl Pair {
    pub(crate) fn v4(sending: SenderOptions, receiving: ReceiverOptions) -> Self {
        let cable = Cable::new();
        cable.address();
        Self::over(cable, LEFT_IP.into(), RIGHT_IP.into(), sending, receiving)
    }

    pub(crate) fn over(
        cable: Cable,
        left: IpAddr,
        right: IpAddr,
        sending: SenderOptions,
        receiving: ReceiverOptions,
    ) -> Self {
        let far = SocketAddr::new(right, PORT);
        let receiver = bind_in(&cable.right, far, receiving);
        let near = SocketAddr::new(left, 0);
        let sender = cable.left.enter(|| UdpSender::connect(Some(near), far, &sending)).unwrap().unwrap();
        Self { cable, sender, receiver }
    }
}

pub(crate) fn bind_in(host: &NetNamespace, address: SocketAddr, options: ReceiverOptions) -> UdpReceiver {
    host.enter(|| UdpReceiver::bind(address, &options)).unwrap().unwrap()
}

/// A receiver that loses nothing of a few thousand datagrams.
pub(crate) fn roomy() -> ReceiverOptions {
    ReceiverOptions { receive_buffer_bytes: Some(16 << 20), ..ReceiverOptions::default() }
}

/// Sends datagrams numbered from `first`, `count` of them, each of `bytes` with its number at the start.
pub(crate) fn send_numbered(sender: &UdpSender, first: u64, count: u64, bytes: usize, singly: bool) {
    let mut batch = SendBatch::new(sender.segments_most(bytes), bytes);
    let mut next = first;
    while next < first + count {
        let now = batch.datagrams().min((first + count - next) as usize);
        for (number, datagram) in (next..).zip(batch.datagrams_mut().take(now)) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        }
        let sent = if singly {
            sender.send_singly(&mut batch, 0..now, true)
        } else {
            sender.send_segments(batch.bytes(0..now), bytes, true)
        };
        match sent.unsent {
            None => {}
            Some(Unsent::Unknown) => panic!("refused"),
            Some(Unsent::Because(error)) => panic!("{error}"),
        }
        next += sent.datagrams as u64;
    }
}

/// The numbers of all datagrams that come, until none has come for `patience`, or `most` have.
pub(crate) fn receive_numbered(
    receiver: &UdpReceiver,
    slots: &mut ReceiveSlots,
    most: usize,
    patience: Nanos,
) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < most && receiver.receive_until(slots, monotonic() + patience).unwrap() > 0 {
        numbers.extend(slots.datagrams().map(|d| u64::from_be_bytes(d.bytes[..8].try_into().unwrap())));
    }
    numbers
}
