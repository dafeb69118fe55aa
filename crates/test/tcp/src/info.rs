//! All fields of `struct tcp_info`, as of Linux 6.18.
//!
//! A kernel writes the part of the structure that it knows; the fields that an older kernel lacks are `None`. New fields were
//! always appended, so offsets are the same on every kernel.
//!
//! Source: `include/uapi/linux/tcp.h`, `tcp_get_info` in `net/ipv4/tcp.c`. The names are the kernel's without `tcpi_`, with a unit.

/// Size of the structure in Linux 6.18, bytes; newer kernels can have a longer one.
pub const INFO_BYTES: usize = 280;

/// A field of the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The kernel's name without `tcpi_`, with its unit: the column name in a file.
    pub name: &'static str,
    /// Offset, bytes.
    offset: usize,
    /// Bit offset in that byte.
    shift: u8,
    /// Size, bits.
    bits: u8,
}

impl Field {
    const fn new(name: &'static str, offset: usize, shift: u8, bits: u8) -> Self {
        Self { name, offset, shift, bits }
    }

    /// Size, bits: 1, 2, 4, 8, 16, 32 or 64.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// The offset of the first byte after the field.
    const fn end(&self) -> usize {
        self.offset + (self.bits as usize).div_ceil(8)
    }
}

/// One reading of `TCP_INFO`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    bytes: [u8; INFO_BYTES],
    /// Number of bytes that the kernel wrote.
    length: u16,
}

impl Default for TcpInfo {
    /// No field is known.
    fn default() -> Self {
        Self { bytes: [0; INFO_BYTES], length: 0 }
    }
}

impl TcpInfo {
    /// Parses the bytes that a kernel wrote, in this machine's byte order. Bytes after the known fields are ignored.
    pub fn parse(written: &[u8]) -> Self {
        let mut info = Self::default();
        let length = written.len().min(INFO_BYTES);
        info.bytes[..length].copy_from_slice(&written[..length]);
        // At most INFO_BYTES.
        info.length = length as u16;
        info
    }

    /// The value of `field`; `None` if the kernel did not write it.
    pub fn get(&self, field: Field) -> Option<u64> {
        if field.end() > usize::from(self.length) {
            return None;
        }
        let mut word = [0; 8];
        let length = field.end() - field.offset;
        // Little and big endian differ in the place of a shorter number in a word.
        let place = if cfg!(target_endian = "little") { 0 } else { 8 - length };
        word[place..place + length].copy_from_slice(&self.bytes[field.offset..field.end()]);
        let word = u64::from_ne_bytes(word);
        // Bit-fields begin with the lowest bit on little endian, with the highest on big endian.
        let shift = match (field.bits < 8, cfg!(target_endian = "little")) {
            (true, false) => 8 - field.shift - field.bits,
            _ => field.shift,
        };
        Some(if field.bits < 8 { (word >> shift) & ((1 << field.bits) - 1) } else { word })
    }

    /// The value of `field`; 0 if the kernel did not write it.
    pub fn value(&self, field: Field) -> u64 {
        self.get(field).unwrap_or(0)
    }

    /// That of `values` of [`FIELDS`], in their order, as a table has them. A table leaves out all ones, the kernel's word for no limit and for no value
    /// yet: they are what is missing before fields that are there.
    pub fn of_values(values: &[Option<u64>]) -> Self {
        let known = values.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let mut info = Self::default();
        for (field, value) in FIELDS.into_iter().zip(&values[..known]) {
            info.set(field, value.unwrap_or(u64::MAX));
        }
        info
    }

    /// Sets a field of whole bytes; bit-fields are not changed.
    pub(super) fn set(&mut self, field: Field, value: u64) {
        let length = field.end() - field.offset;
        if field.bits < 8 {
            let shift = if cfg!(target_endian = "little") { field.shift } else { 8 - field.shift - field.bits };
            let mask = ((1_u16 << field.bits) - 1) as u8;
            let byte = &mut self.bytes[field.offset];
            *byte = *byte & !(mask << shift) | (value as u8 & mask) << shift;
        } else {
            let word = value.to_ne_bytes();
            let place = if cfg!(target_endian = "little") { 0 } else { 8 - length };
            self.bytes[field.offset..field.end()].copy_from_slice(&word[place..place + length]);
        }
        self.length = self.length.max(field.end() as u16);
    }

    /// Number of known bytes that the kernel wrote.
    pub fn length(&self) -> usize {
        self.length.into()
    }

    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(INFO_BYTES) as u16;
    }
}

impl std::fmt::Debug for TcpInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = FIELDS.iter().filter_map(|field| Some((field.name, self.get(*field)?)));
        f.debug_map().entries(known.filter(|(_, value)| *value > 0)).finish()
    }
}

/// Each field by its name. Times are as the kernel counts them: `_us` microseconds, `_ms` milliseconds.
pub mod fields {
    use super::Field;

    /// `state`.
    pub const STATE: Field = Field::new("state", 0, 0, 8);
    /// `ca_state`.
    pub const CA_STATE: Field = Field::new("ca_state", 1, 0, 8);
    /// `retransmits`.
    pub const RETRANSMITS: Field = Field::new("retransmits", 2, 0, 8);
    /// `probes`.
    pub const PROBES: Field = Field::new("probes", 3, 0, 8);
    /// `backoff`.
    pub const BACKOFF: Field = Field::new("backoff", 4, 0, 8);
    /// `options`.
    pub const OPTIONS: Field = Field::new("options", 5, 0, 8);
    /// `snd_wscale`.
    pub const SND_WSCALE: Field = Field::new("snd_wscale", 6, 0, 4);
    /// `rcv_wscale`.
    pub const RCV_WSCALE: Field = Field::new("rcv_wscale", 6, 4, 4);
    /// `delivery_rate_app_limited`.
    pub const DELIVERY_RATE_APP_LIMITED: Field = Field::new("delivery_rate_app_limited", 7, 0, 1);
    /// `fastopen_client_fail`.
    pub const FASTOPEN_CLIENT_FAIL: Field = Field::new("fastopen_client_fail", 7, 1, 2);
    /// `rto_us`.
    pub const RTO: Field = Field::new("rto_us", 8, 0, 32);
    /// `ato_us`.
    pub const ATO: Field = Field::new("ato_us", 12, 0, 32);
    /// `snd_mss_bytes`.
    pub const SND_MSS: Field = Field::new("snd_mss_bytes", 16, 0, 32);
    /// `rcv_mss_bytes`.
    pub const RCV_MSS: Field = Field::new("rcv_mss_bytes", 20, 0, 32);
    /// `unacked_packets`.
    pub const UNACKED: Field = Field::new("unacked_packets", 24, 0, 32);
    /// `sacked_packets`.
    pub const SACKED: Field = Field::new("sacked_packets", 28, 0, 32);
    /// `lost_packets`.
    pub const LOST: Field = Field::new("lost_packets", 32, 0, 32);
    /// `retrans_packets`.
    pub const RETRANS: Field = Field::new("retrans_packets", 36, 0, 32);
    /// `fackets_packets`.
    pub const FACKETS: Field = Field::new("fackets_packets", 40, 0, 32);
    /// `last_data_sent_ms`.
    pub const LAST_DATA_SENT: Field = Field::new("last_data_sent_ms", 44, 0, 32);
    /// `last_ack_sent_ms`.
    pub const LAST_ACK_SENT: Field = Field::new("last_ack_sent_ms", 48, 0, 32);
    /// `last_data_recv_ms`.
    pub const LAST_DATA_RECV: Field = Field::new("last_data_recv_ms", 52, 0, 32);
    /// `last_ack_recv_ms`.
    pub const LAST_ACK_RECV: Field = Field::new("last_ack_recv_ms", 56, 0, 32);
    /// `pmtu_bytes`.
    pub const PMTU: Field = Field::new("pmtu_bytes", 60, 0, 32);
    /// `rcv_ssthresh_bytes`.
    pub const RCV_SSTHRESH: Field = Field::new("rcv_ssthresh_bytes", 64, 0, 32);
    /// `rtt_us`.
    pub const RTT: Field = Field::new("rtt_us", 68, 0, 32);
    /// `rttvar_us`.
    pub const RTTVAR: Field = Field::new("rttvar_us", 72, 0, 32);
    /// `snd_ssthresh_packets`.
    pub const SND_SSTHRESH: Field = Field::new("snd_ssthresh_packets", 76, 0, 32);
    /// `snd_cwnd_packets`.
    pub const SND_CWND: Field = Field::new("snd_cwnd_packets", 80, 0, 32);
    /// `advmss_bytes`.
    pub const ADVMSS: Field = Field::new("advmss_bytes", 84, 0, 32);
    /// `reordering_packets`.
    pub const REORDERING: Field = Field::new("reordering_packets", 88, 0, 32);
    /// `rcv_rtt_us`.
    pub const RCV_RTT: Field = Field::new("rcv_rtt_us", 92, 0, 32);
    /// `rcv_space_bytes`.
    pub const RCV_SPACE: Field = Field::new("rcv_space_bytes", 96, 0, 32);
    /// `total_retrans_packets`.
    pub const TOTAL_RETRANS: Field = Field::new("total_retrans_packets", 100, 0, 32);
    /// `pacing_rate_bytes_per_second`.
    pub const PACING_RATE: Field = Field::new("pacing_rate_bytes_per_second", 104, 0, 64);
    /// `max_pacing_rate_bytes_per_second`.
    pub const MAX_PACING_RATE: Field = Field::new("max_pacing_rate_bytes_per_second", 112, 0, 64);
    /// `bytes_acked`.
    pub const BYTES_ACKED: Field = Field::new("bytes_acked", 120, 0, 64);
    /// `bytes_received`.
    pub const BYTES_RECEIVED: Field = Field::new("bytes_received", 128, 0, 64);
    /// `segs_out_packets`.
    pub const SEGS_OUT: Field = Field::new("segs_out_packets", 136, 0, 32);
    /// `segs_in_packets`.
    pub const SEGS_IN: Field = Field::new("segs_in_packets", 140, 0, 32);
    /// `notsent_bytes`.
    pub const NOTSENT_BYTES: Field = Field::new("notsent_bytes", 144, 0, 32);
    /// `min_rtt_us`.
    pub const MIN_RTT: Field = Field::new("min_rtt_us", 148, 0, 32);
    /// `data_segs_in_packets`.
    pub const DATA_SEGS_IN: Field = Field::new("data_segs_in_packets", 152, 0, 32);
    /// `data_segs_out_packets`.
    pub const DATA_SEGS_OUT: Field = Field::new("data_segs_out_packets", 156, 0, 32);
    /// `delivery_rate_bytes_per_second`.
    pub const DELIVERY_RATE: Field = Field::new("delivery_rate_bytes_per_second", 160, 0, 64);
    /// `busy_time_us`.
    pub const BUSY_TIME: Field = Field::new("busy_time_us", 168, 0, 64);
    /// `rwnd_limited_us`.
    pub const RWND_LIMITED: Field = Field::new("rwnd_limited_us", 176, 0, 64);
    /// `sndbuf_limited_us`.
    pub const SNDBUF_LIMITED: Field = Field::new("sndbuf_limited_us", 184, 0, 64);
    /// `delivered_packets`.
    pub const DELIVERED: Field = Field::new("delivered_packets", 192, 0, 32);
    /// `delivered_ce_packets`.
    pub const DELIVERED_CE: Field = Field::new("delivered_ce_packets", 196, 0, 32);
    /// `bytes_sent`.
    pub const BYTES_SENT: Field = Field::new("bytes_sent", 200, 0, 64);
    /// `bytes_retrans`.
    pub const BYTES_RETRANS: Field = Field::new("bytes_retrans", 208, 0, 64);
    /// `dsack_dups_packets`.
    pub const DSACK_DUPS: Field = Field::new("dsack_dups_packets", 216, 0, 32);
    /// `reord_seen_events`.
    pub const REORD_SEEN: Field = Field::new("reord_seen_events", 220, 0, 32);
    /// `rcv_ooopack_packets`.
    pub const RCV_OOOPACK: Field = Field::new("rcv_ooopack_packets", 224, 0, 32);
    /// `snd_wnd_bytes`.
    pub const SND_WND: Field = Field::new("snd_wnd_bytes", 228, 0, 32);
    /// `rcv_wnd_bytes`.
    pub const RCV_WND: Field = Field::new("rcv_wnd_bytes", 232, 0, 32);
    /// `rehash_attempts`.
    pub const REHASH: Field = Field::new("rehash_attempts", 236, 0, 32);
    /// `total_rto_timeouts`.
    pub const TOTAL_RTO: Field = Field::new("total_rto_timeouts", 240, 0, 16);
    /// `total_rto_recoveries`.
    pub const TOTAL_RTO_RECOVERIES: Field = Field::new("total_rto_recoveries", 242, 0, 16);
    /// `total_rto_time_ms`.
    pub const TOTAL_RTO_TIME: Field = Field::new("total_rto_time_ms", 244, 0, 32);
    /// `received_ce_packets`.
    pub const RECEIVED_CE: Field = Field::new("received_ce_packets", 248, 0, 32);
    /// `delivered_e1_bytes`.
    pub const DELIVERED_E1_BYTES: Field = Field::new("delivered_e1_bytes", 252, 0, 32);
    /// `delivered_e0_bytes`.
    pub const DELIVERED_E0_BYTES: Field = Field::new("delivered_e0_bytes", 256, 0, 32);
    /// `delivered_ce_bytes`.
    pub const DELIVERED_CE_BYTES: Field = Field::new("delivered_ce_bytes", 260, 0, 32);
    /// `received_e1_bytes`.
    pub const RECEIVED_E1_BYTES: Field = Field::new("received_e1_bytes", 264, 0, 32);
    /// `received_e0_bytes`.
    pub const RECEIVED_E0_BYTES: Field = Field::new("received_e0_bytes", 268, 0, 32);
    /// `received_ce_bytes`.
    pub const RECEIVED_CE_BYTES: Field = Field::new("received_ce_bytes", 272, 0, 32);
    /// `accecn_fail_mode`.
    pub const ACCECN_FAIL_MODE: Field = Field::new("accecn_fail_mode", 276, 0, 16);
    /// `accecn_opt_seen`.
    pub const ACCECN_OPT_SEEN: Field = Field::new("accecn_opt_seen", 278, 0, 16);
}

/// All fields, in the order of the structure.
pub const FIELDS: [Field; 70] = [
    fields::STATE,
    fields::CA_STATE,
    fields::RETRANSMITS,
    fields::PROBES,
    fields::BACKOFF,
    fields::OPTIONS,
    fields::SND_WSCALE,
    fields::RCV_WSCALE,
    fields::DELIVERY_RATE_APP_LIMITED,
    fields::FASTOPEN_CLIENT_FAIL,
    fields::RTO,
    fields::ATO,
    fields::SND_MSS,
    fields::RCV_MSS,
    fields::UNACKED,
    fields::SACKED,
    fields::LOST,
    fields::RETRANS,
    fields::FACKETS,
    fields::LAST_DATA_SENT,
    fields::LAST_ACK_SENT,
    fields::LAST_DATA_RECV,
    fields::LAST_ACK_RECV,
    fields::PMTU,
    fields::RCV_SSTHRESH,
    fields::RTT,
    fields::RTTVAR,
    fields::SND_SSTHRESH,
    fields::SND_CWND,
    fields::ADVMSS,
    fields::REORDERING,
    fields::RCV_RTT,
    fields::RCV_SPACE,
    fields::TOTAL_RETRANS,
    fields::PACING_RATE,
    fields::MAX_PACING_RATE,
    fields::BYTES_ACKED,
    fields::BYTES_RECEIVED,
    fields::SEGS_OUT,
    fields::SEGS_IN,
    fields::NOTSENT_BYTES,
    fields::MIN_RTT,
    fields::DATA_SEGS_IN,
    fields::DATA_SEGS_OUT,
    fields::DELIVERY_RATE,
    fields::BUSY_TIME,
    fields::RWND_LIMITED,
    fields::SNDBUF_LIMITED,
    fields::DELIVERED,
    fields::DELIVERED_CE,
    fields::BYTES_SENT,
    fields::BYTES_RETRANS,
    fields::DSACK_DUPS,
    fields::REORD_SEEN,
    fields::RCV_OOOPACK,
    fields::SND_WND,
    fields::RCV_WND,
    fields::REHASH,
    fields::TOTAL_RTO,
    fields::TOTAL_RTO_RECOVERIES,
    fields::TOTAL_RTO_TIME,
    fields::RECEIVED_CE,
    fields::DELIVERED_E1_BYTES,
    fields::DELIVERED_E0_BYTES,
    fields::DELIVERED_CE_BYTES,
    fields::RECEIVED_E1_BYTES,
    fields::RECEIVED_E0_BYTES,
    fields::RECEIVED_CE_BYTES,
    fields::ACCECN_FAIL_MODE,
    fields::ACCECN_OPT_SEEN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_structure_without_gap() {
        let (mut byte, mut bit) = (0, 0);
        for field in FIELDS {
            assert_eq!((field.offset, field.shift), (byte, bit), "{}", field.name);
            bit += field.bits;
            // Three bits of byte 7 are not in use.
            if field.name == "fastopen_client_fail" {
                bit = 8;
            }
            while bit >= 8 {
                (byte, bit) = (byte + 1, bit - 8);
            }
        }
        assert_eq!((byte, bit), (INFO_BYTES, 0));
        let mut names: Vec<_> = FIELDS.iter().map(|field| field.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIELDS.len());
    }

    #[test]
    fn a_shorter_structure_lacks_its_last_fields() {
        // Linux 4.9 ends with the delivery rate.
        let mut bytes: Vec<u8> = (0..168).collect();
        bytes[6] = 0x7a;
        let info = TcpInfo::parse(&bytes);
        assert_eq!(info.get(fields::RTT), Some(u64::from(u32::from_ne_bytes([68, 69, 70, 71]))));
        assert!(info.get(fields::DELIVERY_RATE).is_some());
        assert_eq!((info.get(fields::BUSY_TIME), info.get(fields::ACCECN_OPT_SEEN)), (None, None));
        if cfg!(target_endian = "little") {
            assert_eq!((info.get(fields::SND_WSCALE), info.get(fields::RCV_WSCALE)), (Some(10), Some(7)));
        }
        assert_eq!(TcpInfo::parse(&bytes[..165]).get(fields::DELIVERY_RATE), None, "cut within the field");
        assert_eq!(TcpInfo::parse(&[0xff; 400]).get(fields::BYTES_SENT), Some(u64::MAX));
    }

    #[test]
    fn what_is_set_is_got() {
        let mut info = TcpInfo::default();
        for (number, field) in (1_u64..).zip(FIELDS) {
            let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (u64::MAX >> (64 - field.bits));
            info.set(field, value);
            assert_eq!(info.get(field), Some(value), "{}", field.name);
        }
        assert_eq!(info.length(), INFO_BYTES);
        assert_eq!(info.get(fields::SND_WSCALE), Some(7_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 15));
    }
}
