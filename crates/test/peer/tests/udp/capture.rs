//! The independent record: which packets of a test passed an interface, in which order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_kernel::wait::readable_until;
use longhaul_lab::Lab;
use longhaul_units::Nanos;
use longhaul_wire::VnetHeader;
use longhaul_wire::probe::{FIRST_RESERVED, Probe};

/// One wire packet, of which a super-packet has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Its number, if it looks like a bulk packet of a test.
    pub(crate) sequence: Option<u64>,
    /// The number of the captured frame that it was in; the packets of a super-packet share one.
    pub(crate) unit: usize,
    /// The whole frame; empty for the packets of a super-packet.
    pub(crate) frame: Vec<u8>,
    /// Its checksum is not computed yet: it was never on a wire that could damage it.
    pub(crate) unsummed: bool,
}

/// Records what arrives at an interface until it is finished.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    bulk: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Wire>>,
}

impl Capture {
    /// What `host` sends, as it comes out of its interface.
    pub(crate) fn leaving(lab: &Lab, host: &str) -> Self {
        Self::start(lab.core(), &lab.host(host).unwrap().plan.port)
    }

    /// What reaches the stack of `host`: behind XDP in the driver, before tc and netfilter.
    pub(crate) fn reaching(lab: &Lab, host: &str) -> Self {
        Self::start(&lab.host(host).unwrap().namespace, "eth0")
    }

    fn start(namespace: &NetNamespace, interface: &str) -> Self {
        let open = || {
            let index = Netlink::open().unwrap().index_of(interface).unwrap();
            PacketSocket::open(index, &PacketOptions { receive_buffer_bytes: 256 << 20, ..PacketOptions::default() })
        };
        let socket = namespace.enter(open).unwrap().unwrap();
        let (stop, bulk): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&bulk));
        let thread = thread::spawn(move || {
            let mut packets = Vec::new();
            let mut buffer = vec![0; 1 << 17];
            let mut units = 0;
            loop {
                let last = stopped.load(Ordering::Acquire);
                while let Ok(Some(received)) = socket.receive(&mut buffer) {
                    let before = packets.len();
                    split(&buffer[..received.frame_bytes], &VnetHeader::parse(&received.vnet), units, &mut packets);
                    units += 1;
                    let bulk = packets[before..].iter().filter(|packet| packet.sequence.is_some()).count();
                    seen.fetch_add(bulk, Ordering::Release);
                }
                if last {
                    assert_eq!(socket.drops(), 0, "frames that the capture missed");
                    return packets;
                }
                readable_until(&socket, Some(monotonic() + Nanos::from_millis(10))).unwrap();
            }
        });
        Self { stop, bulk, thread }
    }

    /// Bulk packets so far.
    pub(crate) fn bulk(&self) -> usize {
        self.bulk.load(Ordering::Acquire)
    }

    /// Every wire packet, in order.
    pub(crate) fn finish(self) -> Vec<Wire> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }

    /// The numbers of the bulk packets.
    pub(crate) fn sequences(self) -> BTreeSet<u64> {
        self.finish().into_iter().filter_map(|packet| packet.sequence).collect()
    }
}

/// Takes a frame apart.
fn split(frame: &[u8], vnet: &VnetHeader, unit: usize, out: &mut Vec<Wire>) {
    let segment = usize::from(vnet.gso_size);
    let unsummed = vnet.needs_csum();
    let bulk = |payload: &[u8]| {
        Probe::parse(payload).map(|probe| probe.sequence).filter(|sequence| *sequence < FIRST_RESERVED)
    };
    let wire = |sequence, frame: &[u8]| Wire { sequence, unit, frame: frame.to_vec(), unsummed };
    match (headers(frame), segment) {
        // Of TCP only the number of packets matters.
        (Some((6, payload)), 1..) => {
            let packets = payload.len().div_ceil(segment).max(1);
            out.extend((0..packets).map(|_| wire(None, &[])));
        }
        (Some((17, payload)), 1..) => out.extend(payload.chunks(segment).map(|one| wire(bulk(one), &[]))),
        (Some((17, payload)), 0) => out.push(wire(bulk(payload), frame)),
        _ => out.push(wire(None, frame)),
    }
}

/// Protocol and payload behind the transport header.
fn headers(frame: &[u8]) -> Option<(u8, &[u8])> {
    let ip = frame.get(14..)?;
    let (protocol, transport) = match ip.first()? >> 4 {
        // A later fragment has no header behind that of IP.
        4 if ip.get(6)? & 0x1f | ip.get(7)? != 0 => return None,
        4 => (*ip.get(9)?, ip.get(usize::from(ip[0] & 0xf) * 4..)?),
        6 => (*ip.get(6)?, ip.get(40..)?),
        _ => return None,
    };
    let bytes = match protocol {
        6 => usize::from(transport.get(12)? >> 4) * 4,
        _ => 8,
    };
    Some((protocol, transport.get(bytes..)?))
}
