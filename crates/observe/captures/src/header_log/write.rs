//! Packets to columns.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnPath;

use super::chunk::ChunkEncoder;
use super::columns::{At, CLASSES, COLUMNS, Class, Column, Kind, schema};
use super::{ABOUT_KEY, About, HeaderLogError, SCHEMA, hybrid};
use crate::packet::{Packet, Transport};
use crate::record::InterfaceDirection;

/// Rows that are compressed together: some 10 MB of columns that wait.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// Bytes of snippets that wait with them: of whole super-packets so many rows would have 8 GB.
const ROW_GROUP_SNIPPETS: usize = 64 << 20;

/// How a header log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// Keep the captured bytes too, as a column `snippet`.
    pub snippets: bool,
    /// zstd's level, 1 to 22: beyond 1 it takes longer than the rest.
    pub zstd_level: i32,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { snippets: false, zstd_level: 1 }
    }
}

/// Values of one column that wait.
#[derive(Debug)]
enum Values {
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Bools(Vec<bool>),
    Macs(Vec<[u8; 6]>),
    Addresses(Vec<IpAddr>),
    Snippets(Vec<ByteArray>),
}

impl Values {
    fn clear(&mut self) {
        match self {
            Self::Ints(values) => values.clear(),
            Self::Longs(values) => values.clear(),
            Self::Bools(values) => values.clear(),
            Self::Macs(values) => values.clear(),
            Self::Addresses(values) => values.clear(),
            Self::Snippets(values) => values.clear(),
        }
    }
}

/// Writes a header log, packet by packet, in the order in which they come.
pub struct HeaderLogWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    chunks: ChunkEncoder,
    values: Vec<Values>,
    levels: [Vec<i16>; CLASSES],
    rows: usize,
    snippets: bool,
    /// Bytes of those that wait.
    snippet_bytes: usize,
    last_ns: i64,
    sorted: bool,
    packets: u64,
}

impl<W: Write + Send> std::fmt::Debug for HeaderLogWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeaderLogWriter").field("packets", &self.packets).finish_non_exhaustive()
    }
}

impl<W: Write + Send> HeaderLogWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn new(output: W, options: WriterOptions) -> Result<Self, HeaderLogError> {
        let zstd = ZstdLevel::try_new(options.zstd_level)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(zstd))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_write_batch_size(8192)
            .set_created_by(concat!("longhaul ", env!("CARGO_PKG_VERSION")).into());
        for column in COLUMNS.iter().filter(|column| column.delta) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let writer = SerializedFileWriter::new(output, schema(options.snippets)?, Arc::new(properties.build()))?;
        let values = COLUMNS.iter().map(|column| match column.kind {
            Kind::Time | Kind::Long => Values::Longs(Vec::new()),
            Kind::Int(_) => Values::Ints(Vec::new()),
            Kind::Bool => Values::Bools(Vec::new()),
            Kind::Mac => Values::Macs(Vec::new()),
            Kind::Address => Values::Addresses(Vec::new()),
            Kind::Bytes => Values::Snippets(Vec::new()),
        });
        Ok(Self {
            writer,
            chunks: ChunkEncoder::new(zstd)?,
            values: values.collect(),
            levels: std::array::from_fn(|_| Vec::new()),
            rows: 0,
            snippets: options.snippets,
            snippet_bytes: 0,
            last_ns: i64::MIN,
            sorted: true,
            packets: 0,
        })
    }

    /// Appends a packet; `snippet` is kept where the options say so.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn write(&mut self, packet: &Packet, snippet: &[u8]) -> Result<(), HeaderLogError> {
        self.sorted &= packet.at_ns >= self.last_ns;
        self.last_ns = packet.at_ns;
        self.packets += 1;
        self.frame(packet);
        self.ip(packet);
        self.transport(packet);
        let has_snippet = self.class(Class::Snippet, self.snippets);
        if has_snippet {
            self.snippet(snippet);
        }
        self.rows += 1;
        if self.rows == ROW_GROUP_ROWS || self.snippet_bytes >= ROW_GROUP_SNIPPETS {
            self.flush()?;
        }
        Ok(())
    }

    #[inline]
    fn frame(&mut self, packet: &Packet) {
        self.long(At::Time, packet.at_ns);
        self.int(At::Interface, packet.interface.into());
        let direction = match packet.direction {
            InterfaceDirection::Unknown => 0,
            InterfaceDirection::Inbound => 1,
            InterfaceDirection::Outbound => 2,
        };
        self.int(At::Direction, direction);
        self.int(At::FrameLen, packet.frame_len);
        self.int(At::FrameCapLen, packet.frame_cap_len);
        self.int(At::GsoSegs, packet.gso_segs.into());
        self.int(At::GsoSize, packet.gso_size.into());
        self.int(At::EthType, packet.eth_type.into());
        // Zeros are those of loopback, of a link without, or of what was clipped.
        for (class, at, mac) in
            [(Class::EthSrc, At::EthSrc, packet.eth_src), (Class::EthDst, At::EthDst, packet.eth_dst)]
        {
            if self.class(class, mac != [0; 6]) {
                self.mac(at, mac);
            }
        }
        for (class, at, vlan) in
            [(Class::Vlan, At::VlanId, packet.vlan[0]), (Class::InnerVlan, At::InnerVlanId, packet.vlan[1])]
        {
            self.optional(class, at, vlan.map(u32::from));
        }
    }

    #[inline]
    fn ip(&mut self, packet: &Packet) {
        if !self.class(Class::Ip, packet.ip.is_some()) {
            self.class(Class::IpId, false);
            return;
        }
        let Some(ip) = &packet.ip else { return };
        self.address(At::IpSrc, ip.src);
        self.address(At::IpDst, ip.dst);
        self.int(At::IpProto, ip.protocol.into());
        self.int(At::IpTtl, ip.ttl.into());
        self.int(At::IpDsfield, ip.traffic_class.into());
        self.int(At::IpLen, ip.len);
        self.int(At::IpFragOffset, ip.fragment_offset);
        self.bool(At::IpMoreFragments, ip.more_fragments);
        self.optional(Class::IpId, At::IpId, ip.id);
    }

    #[inline]
    fn transport(&mut self, packet: &Packet) {
        let tcp = if let Transport::Tcp(tcp) = &packet.transport { Some(tcp) } else { None };
        self.class(Class::Tcp, tcp.is_some());
        if let Some(tcp) = tcp {
            self.int(At::TcpSrcPort, tcp.src_port.into());
            self.int(At::TcpDstPort, tcp.dst_port.into());
            self.int(At::TcpSeq, tcp.seq);
            self.int(At::TcpAck, tcp.ack);
            self.int(At::TcpFlags, tcp.flags.into());
            self.int(At::TcpWindow, tcp.window.into());
            self.int(At::TcpLen, tcp.payload_len);
            self.bool(At::TcpClipped, tcp.options.clipped);
            self.bool(At::TcpSackPerm, tcp.options.sack_permitted);
        }
        let options = tcp.map(|tcp| &tcp.options);
        self.optional(Class::Mss, At::TcpMss, options.and_then(|options| options.mss).map(u32::from));
        self.optional(
            Class::WindowScale,
            At::TcpWscale,
            options.and_then(|options| options.window_scale).map(u32::from),
        );
        let stamps = options.and_then(|options| options.timestamps);
        self.pair(Class::Timestamps, At::TcpTsval, At::TcpTsecr, stamps);
        let sacks = [
            (Class::Sack0, At::SackLe0, At::SackRe0),
            (Class::Sack1, At::SackLe1, At::SackRe1),
            (Class::Sack2, At::SackLe2, At::SackRe2),
            (Class::Sack3, At::SackLe3, At::SackRe3),
        ];
        for (nth, (class, left, right)) in sacks.into_iter().enumerate() {
            let block =
                options.filter(|options| nth < usize::from(options.sack_blocks)).map(|options| options.sack[nth]);
            self.pair(class, left, right, block);
        }
        let (is_udp, probe) = match &packet.transport {
            Transport::Udp { src_port, dst_port, payload_len, probe } => {
                self.int(At::UdpSrcPort, (*src_port).into());
                self.int(At::UdpDstPort, (*dst_port).into());
                self.int(At::UdpLen, *payload_len);
                (true, *probe)
            }
            _ => (false, None),
        };
        self.class(Class::Udp, is_udp);
        self.class(Class::Probe, probe.is_some());
        if let Some(probe) = probe {
            self.int(At::ProbeCookie, probe.cookie.0);
            self.long(At::ProbeSequence, probe.sequence as i64);
            self.long(At::ProbeSent, probe.sent_ns as i64);
        }
    }

    #[inline]
    fn class(&mut self, class: Class, there: bool) -> bool {
        self.levels[class as usize].push(there.into());
        there
    }

    #[inline]
    fn optional(&mut self, class: Class, at: At, value: Option<u32>) {
        self.class(class, value.is_some());
        if let Some(value) = value {
            self.int(at, value);
        }
    }

    #[inline]
    fn pair(&mut self, class: Class, a: At, b: At, value: Option<(u32, u32)>) {
        self.class(class, value.is_some());
        if let Some(value) = value {
            self.int(a, value.0);
            self.int(b, value.1);
        }
    }

    /// Numbers keep their bits: the schema says that they have no sign.
    #[inline]
    fn int(&mut self, at: At, value: u32) {
        if let Values::Ints(values) = &mut self.values[at as usize] {
            values.push(value as i32);
        }
    }

    #[inline]
    fn long(&mut self, at: At, value: i64) {
        if let Values::Longs(values) = &mut self.values[at as usize] {
            values.push(value);
        }
    }

    #[inline]
    fn bool(&mut self, at: At, value: bool) {
        if let Values::Bools(values) = &mut self.values[at as usize] {
            values.push(value);
        }
    }

    #[inline]
    fn mac(&mut self, at: At, value: [u8; 6]) {
        if let Values::Macs(values) = &mut self.values[at as usize] {
            values.push(value);
        }
    }

    #[inline]
    fn address(&mut self, at: At, value: IpAddr) {
        if let Values::Addresses(values) = &mut self.values[at as usize] {
            values.push(value);
        }
    }

    fn snippet(&mut self, snippet: &[u8]) {
        if let Values::Snippets(values) = &mut self.values[At::Snippet as usize] {
            values.push(ByteArray::from(snippet.to_vec()));
            self.snippet_bytes += snippet.len();
        }
    }

    /// Writes the rows that wait as a row group.
    fn flush(&mut self) -> Result<(), HeaderLogError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut encoded: [Vec<u8>; CLASSES] = std::array::from_fn(|_| Vec::new());
        for (levels, encoded) in self.levels.iter().zip(&mut encoded) {
            hybrid::encode(levels, 1, |level| level as u32, encoded);
        }
        let descriptors = self.writer.schema_descr().columns().to_vec();
        let mut group = self.writer.next_row_group()?;
        let columns = COLUMNS.iter().filter(|column| column.class != Class::Snippet || self.snippets);
        for ((column, descriptor), values) in columns.zip(descriptors).zip(&mut self.values) {
            let (levels, encoded) = (&self.levels[column.class as usize], &encoded[column.class as usize]);
            let levels = (column.class != Class::Always).then_some(levels.as_slice());
            match values {
                Values::Ints(values) if column.delta && !values.is_empty() => {
                    by_library::<Int32Type, W>(&mut group, column, values, levels)?;
                }
                Values::Ints(values) => self.chunks.append(&mut group, descriptor, self.rows, encoded, values)?,
                Values::Macs(values) => self.chunks.append(&mut group, descriptor, self.rows, encoded, values)?,
                Values::Addresses(values) => self.chunks.append(&mut group, descriptor, self.rows, encoded, values)?,
                Values::Longs(values) => by_library::<Int64Type, W>(&mut group, column, values, levels)?,
                Values::Bools(values) => by_library::<BoolType, W>(&mut group, column, values, levels)?,
                Values::Snippets(values) => by_library::<ByteArrayType, W>(&mut group, column, values, levels)?,
            }
            values.clear();
        }
        group.close()?;
        self.levels.iter_mut().for_each(Vec::clear);
        (self.rows, self.snippet_bytes) = (0, 0);
        Ok(())
    }

    /// Writes what waits and what the log says of itself, and gives the output back. `about` need not say whether it is sorted.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn finish(mut self, about: &About) -> Result<W, HeaderLogError> {
        self.flush()?;
        let about = About { schema: SCHEMA.into(), sorted: self.sorted, ..about.clone() };
        // Our own types serialize.
        let text = serde_json::to_string(&about).expect("plain data");
        self.writer.append_key_value_metadata(KeyValue::new(ABOUT_KEY.to_owned(), text));
        Ok(self.writer.into_inner()?)
    }
}

/// Appends the next column of `group`, which is no dictionary.
fn by_library<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), HeaderLogError> {
    let Some(mut writer) = group.next_column()? else { return Err(HeaderLogError::Column(column.name)) };
    writer.typed::<T>().write_batch(values, levels, None)?;
    Ok(writer.close()?)
}
