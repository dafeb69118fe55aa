//! The columns of a header log.
//!
//! Names are Wireshark's with underscores; docs/reference/header-log.md tells units and meanings. Columns of one [`Class`] have a value in the
//! same rows, so that a reader and a writer deal with one set of levels for all of them.

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use std::sync::Arc;

/// Which rows have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// All.
    Always,
    /// Those with an Ethernet address of the sender, of the receiver.
    EthSrc,
    EthDst,
    /// With a VLAN tag.
    Vlan,
    /// With a second one.
    InnerVlan,
    /// With an IP header.
    Ip,
    /// Whose IP header has an identification.
    IpId,
    /// With a TCP header.
    Tcp,
    /// With TCP's options of that name.
    Mss,
    WindowScale,
    Timestamps,
    Sack0,
    Sack1,
    Sack2,
    Sack3,
    /// With a UDP header.
    Udp,
    /// With what may be longhaul's probe header.
    Probe,
    /// Whose snippet was kept.
    Snippet,
}

/// How many classes there are.
pub(super) const CLASSES: usize = Class::Snippet as usize + 1;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nanoseconds since 1970, signed.
    Time,
    /// Whole numbers without sign, of so many bits, in 32.
    Int(i8),
    /// The same in 64.
    Long,
    Bool,
    /// A MAC address, as text.
    Mac,
    /// An IP address, as text.
    Address,
    Bytes,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) class: Class,
    pub(super) kind: Kind,
    /// Values go up in small steps, or jump: a dictionary would only cost.
    pub(super) delta: bool,
}

macro_rules! columns {
    ($($id:ident $name:literal $class:ident $kind:expr, $delta:literal;)*) => {
        /// A column's place in the file.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum At { $($id),* }

        /// All, in their order.
        pub(super) const COLUMNS: &[Column] = &[
            $(Column { name: $name, class: Class::$class, kind: $kind, delta: $delta }),*
        ];
    };
}

columns! {
    Time "frame_time_ns" Always Kind::Time, true;
    Interface "frame_interface_id" Always Kind::Int(16), false;
    Direction "frame_direction" Always Kind::Int(8), false;
    FrameLen "frame_len" Always Kind::Int(32), false;
    FrameCapLen "frame_cap_len" Always Kind::Int(32), false;
    GsoSegs "gso_segs" Always Kind::Int(16), false;
    GsoSize "gso_size" Always Kind::Int(16), false;
    EthSrc "eth_src" EthSrc Kind::Mac, false;
    EthDst "eth_dst" EthDst Kind::Mac, false;
    EthType "eth_type" Always Kind::Int(16), false;
    VlanId "vlan_id" Vlan Kind::Int(16), false;
    InnerVlanId "vlan_id_inner" InnerVlan Kind::Int(16), false;
    IpSrc "ip_src" Ip Kind::Address, false;
    IpDst "ip_dst" Ip Kind::Address, false;
    IpProto "ip_proto" Ip Kind::Int(8), false;
    IpTtl "ip_ttl" Ip Kind::Int(8), false;
    IpDsfield "ip_dsfield" Ip Kind::Int(8), false;
    IpId "ip_id" IpId Kind::Int(32), true;
    IpLen "ip_len" Ip Kind::Int(32), false;
    IpFragOffset "ip_frag_offset" Ip Kind::Int(32), false;
    IpMoreFragments "ip_flags_mf" Ip Kind::Bool, false;
    TcpSrcPort "tcp_srcport" Tcp Kind::Int(16), false;
    TcpDstPort "tcp_dstport" Tcp Kind::Int(16), false;
    TcpSeq "tcp_seq_raw" Tcp Kind::Int(32), true;
    TcpAck "tcp_ack_raw" Tcp Kind::Int(32), true;
    TcpFlags "tcp_flags" Tcp Kind::Int(16), false;
    TcpWindow "tcp_window_size_value" Tcp Kind::Int(16), false;
    TcpLen "tcp_len" Tcp Kind::Int(32), false;
    TcpClipped "tcp_options_clipped" Tcp Kind::Bool, false;
    TcpSackPerm "tcp_options_sack_perm" Tcp Kind::Bool, false;
    TcpMss "tcp_options_mss_val" Mss Kind::Int(16), false;
    TcpWscale "tcp_options_wscale_shift" WindowScale Kind::Int(8), false;
    TcpTsval "tcp_options_timestamp_tsval" Timestamps Kind::Int(32), true;
    TcpTsecr "tcp_options_timestamp_tsecr" Timestamps Kind::Int(32), true;
    SackLe0 "tcp_options_sack_le" Sack0 Kind::Int(32), true;
    SackRe0 "tcp_options_sack_re" Sack0 Kind::Int(32), true;
    SackLe1 "tcp_options_sack_le_2" Sack1 Kind::Int(32), true;
    SackRe1 "tcp_options_sack_re_2" Sack1 Kind::Int(32), true;
    SackLe2 "tcp_options_sack_le_3" Sack2 Kind::Int(32), true;
    SackRe2 "tcp_options_sack_re_3" Sack2 Kind::Int(32), true;
    SackLe3 "tcp_options_sack_le_4" Sack3 Kind::Int(32), true;
    SackRe3 "tcp_options_sack_re_4" Sack3 Kind::Int(32), true;
    UdpSrcPort "udp_srcport" Udp Kind::Int(16), false;
    UdpDstPort "udp_dstport" Udp Kind::Int(16), false;
    UdpLen "udp_payload_len" Udp Kind::Int(32), false;
    ProbeCookie "probe_cookie" Probe Kind::Int(32), false;
    ProbeSequence "probe_sequence" Probe Kind::Long, true;
    ProbeSent "probe_sent_ns" Probe Kind::Long, true;
    Snippet "snippet" Snippet Kind::Bytes, false;
}

/// The schema of the file; with `snippet` only where snippets are kept.
pub(super) fn schema(with_snippets: bool) -> Result<TypePtr, ParquetError> {
    let fields = COLUMNS.iter().filter(|column| with_snippets || column.class != Class::Snippet).map(|column| {
        let repetition = if column.class == Class::Always { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        let integer = |bits| Some(LogicalType::integer(bits, false));
        let (physical, logical) = match column.kind {
            Kind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
            Kind::Int(bits) => (PhysicalType::INT32, integer(bits)),
            Kind::Long => (PhysicalType::INT64, integer(64)),
            Kind::Bool => (PhysicalType::BOOLEAN, None),
            Kind::Mac | Kind::Address => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Bytes => (PhysicalType::BYTE_ARRAY, None),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_converted_type(ConvertedType::NONE)
            .with_logical_type(logical);
        Ok(Arc::new(field.build()?))
    });
    let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder("packets").with_fields(fields).build()?))
}
