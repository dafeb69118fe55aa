//! Both ends of a conversation, as packets.

use std::net::IpAddr;

use super::super::*;
use longhaul_captures::packet::{Ip, Options, Packet, Tcp, Transport};

pub(super) const MS: i64 = 1_000_000;
pub(super) const SYN: u16 = 2;
pub(super) const ACK: u16 = 16;
pub(super) const FIN: u16 = 1;
pub(super) const RST: u16 = 4;
pub(super) const MSS: u32 = 1_000;

/// Makes packets between 10.0.0.1:1000 (forward) and 10.0.0.2:2000.
#[derive(Clone)]
pub(super) struct Talk {
    pub(super) flows: Vec<Packet>,
    pub(super) ports: (u16, u16),
    pub(super) stamps: bool,
    pub(super) ids: bool,
    pub(super) next_id: [u32; 2],
}

impl Talk {
    pub(super) fn new() -> Self {
        Self { flows: Vec::new(), ports: (1000, 2000), stamps: false, ids: false, next_id: [100, 9000] }
    }

    /// A packet at `at_ns`. Time stamps, where on, are the time in milliseconds.
    pub(super) fn say(
        &mut self,
        at_ns: i64,
        forward: bool,
        flags: u16,
        seq: u32,
        ack: u32,
        payload_len: u32,
    ) -> &mut Packet {
        let address = |host: u8| IpAddr::from([10, 0, 0, host]);
        let (src, dst) = if forward { (1, 2) } else { (2, 1) };
        let ports = if forward { self.ports } else { (self.ports.1, self.ports.0) };
        let id = &mut self.next_id[usize::from(!forward)];
        *id += 1;
        let options = Options { timestamps: self.stamps.then_some(((at_ns / MS) as u32, 0)), ..Options::default() };
        let (src_port, dst_port) = ports;
        self.flows.push(Packet {
            at_ns,
            frame_len: 54 + payload_len,
            frame_cap_len: 54,
            eth_type: 0x0800,
            ip: Some(Ip {
                src: address(src),
                dst: address(dst),
                protocol: 6,
                ttl: 64,
                traffic_class: 0,
                id: Some(if self.ids { *id & 0xffff } else { 0 }),
                len: 40 + payload_len,
                fragment_offset: 0,
                more_fragments: false,
            }),
            transport: Transport::Tcp(Tcp { src_port, dst_port, seq, ack, flags, window: 1000, payload_len, options }),
            ..Packet::default()
        });
        self.flows.last_mut().unwrap()
    }

    /// A handshake that takes 2 ms to the server and 8 ms to the client; data follows from `start + 10 ms` on, from 1 in
    /// either direction.
    pub(super) fn handshake(&mut self, start: i64) {
        let offer = Options { mss: Some(MSS as u16), window_scale: Some(7), ..Options::default() };
        options(self.say(start, true, SYN, 0, 0, 0), |own| *own = offer);
        options(self.say(start + 2 * MS, false, SYN | ACK, 0, 1, 0), |own| *own = offer);
        self.say(start + 10 * MS, true, ACK, 1, 1, 0);
    }

    pub(super) fn run(&self) -> Vec<FlowSummary> {
        self.run_with(|_| ())
    }

    pub(super) fn run_with(&self, mut change: impl FnMut(&mut Packet)) -> Vec<FlowSummary> {
        let mut flows = Flows::new(FlowOptions::default(), Vec::new());
        for packet in &self.flows {
            let mut packet = *packet;
            change(&mut packet);
            flows.packet(&packet);
        }
        flows.finish().0
    }

    pub(super) fn one(&self) -> FlowSummary {
        let mut all = self.run();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }
}

pub(super) fn options(packet: &mut Packet, change: impl FnOnce(&mut Options)) {
    let Transport::Tcp(tcp) = &mut packet.transport else { panic!() };
    change(&mut tcp.options);
}

pub(super) fn forward(flow: &FlowSummary) -> &TcpSummary {
    flow.forward.tcp.as_ref().unwrap()
}

/// Sequence number of the `n`th segment.
pub(super) fn seq(n: u32) -> u32 {
    1 + n * MSS
}

/// Intervals between data packets of the first direction.
pub(super) struct Intervalled(pub(super) u32);

impl Sink for Intervalled {
    fn flow(&mut self, _: FlowSummary) {}

    fn interval(&mut self, _: u64, forward: bool, _: i64, _: i64) {
        self.0 += u32::from(forward);
    }
}
