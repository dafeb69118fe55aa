//! What a connection's ends agreed on, and what of the client's offer arrived: what is missing there, a middlebox removed, or the
//! client's settings.
//!
//! Source: RFC 9293 §3.1, RFC 7323, RFC 2018, RFC 3168 §6.1.1; `tcpi_options` in `include/uapi/linux/tcp.h`.

use longhaul_wire::{ipv4, ipv6, tcp};
use serde::{Deserialize, Serialize};

use super::summary::FlowSummary;

/// Protocol number of TCP.
const TCP: u8 = 6;

/// The SYN of a connection, as it arrived at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SynReceived {
    /// The client's largest segment, bytes; `null` without the option.
    pub mss_bytes: Option<u16>,
    /// By how many bits the client's windows are shifted; `null` without the option.
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are permitted.
    pub sack_permitted: bool,
    /// Time stamps are offered.
    pub timestamps: bool,
    /// ECN is offered: ECE and CWR are set.
    pub ecn: bool,
    /// The TOS byte of IPv4 or the traffic class of IPv6: DSCP and ECN.
    pub tos: u8,
}

impl SynReceived {
    /// Reads a packet that begins with its IP header; `None` if it is no SYN of TCP.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (tos, segment) = if let Some(ip) = ipv4::Packet::new_checked(packet) {
            (packet[1], packet.get(ip.header_len()..).filter(|_| ip.protocol() == TCP)?)
        } else {
            let ip = ipv6::Packet::new_checked(packet)?;
            let segment = packet.get(ipv6::HEADER_LEN..).filter(|_| ip.next_header() == TCP)?;
            (packet[0] << 4 | packet[1] >> 4, segment)
        };
        let segment = tcp::Segment::new_checked(segment)?;
        if segment.flags() & tcp::flag::SYN == 0 {
            return None;
        }
        let ecn = tcp::flag::ECE | tcp::flag::CWR;
        let mut syn = Self { tos, ecn: segment.flags() & ecn == ecn, ..Self::default() };
        for (kind, value) in segment.options() {
            match (kind, value) {
                (tcp::option::MAXIMUM_SEGMENT_SIZE, &[high, low]) => {
                    syn.mss_bytes = Some(u16::from_be_bytes([high, low]))
                }
                (tcp::option::WINDOW_SCALE, &[shift]) => syn.window_scale = Some(shift),
                (tcp::option::SACK_PERMITTED, []) => syn.sack_permitted = true,
                (tcp::option::TIMESTAMPS, [_, _, _, _, _, _, _, _]) => syn.timestamps = true,
                _ => {}
            }
        }
        Some(syn)
    }
}

/// The options that an end of a connection uses (`tcpi_options`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpEndOptions {
    /// Time stamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Window scaling (RFC 7323).
    pub window_scaling: bool,
    /// ECN was negotiated (RFC 3168).
    pub ecn: bool,
    /// At least one packet arrived that ECN could mark.
    pub ecn_seen: bool,
    /// By how many bits the windows are shifted that it receives.
    pub send_window_scale: u8,
    /// By how many bits the windows are shifted that it sends.
    pub receive_window_scale: u8,
    /// The largest segment that it announced, bytes (`tcpi_advmss`).
    pub announced_mss_bytes: u64,
}

impl TcpEndOptions {
    /// What the samples of an end say.
    pub fn of(summary: &FlowSummary) -> Self {
        let has = |bit: u8| summary.options & bit != 0;
        Self {
            timestamps: has(1),
            sack: has(2),
            window_scaling: has(4),
            ecn: has(8),
            ecn_seen: has(16),
            send_window_scale: summary.send_window_scale,
            receive_window_scale: summary.receive_window_scale,
            announced_mss_bytes: summary.announced_mss_bytes,
        }
    }
}

/// How a connection was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpHandshake {
    /// The client's SYN as it arrived at the server; `null` if the server did not report it.
    pub syn_received: Option<SynReceived>,
    /// The client's options.
    pub client_options: TcpEndOptions,
    /// The server's.
    pub server_options: TcpEndOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_over_either_ip() {
        let mut segment = [0; 32];
        (segment[12], segment[13]) = (0x80, 0xc2);
        segment[20..].copy_from_slice(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 0, 0]);
        let mut v4 = vec![0x45, 0x2e, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut v6 = vec![0x62, 0xe0, 0, 0, 0, 32, 6, 64];
        v6.resize(40, 1);
        for packet in [&mut v4, &mut v6] {
            packet.extend(segment);
            let syn = SynReceived::parse(packet).unwrap();
            let expected = SynReceived {
                mss_bytes: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: false,
                ecn: true,
                tos: 0x2e,
            };
            assert_eq!(syn, expected);
            for length in 0..packet.len() {
                assert_eq!(SynReceived::parse(&packet[..length]), None);
            }
        }
        v4[33] = 0x10;
        assert_eq!(SynReceived::parse(&v4), None);
    }
}
