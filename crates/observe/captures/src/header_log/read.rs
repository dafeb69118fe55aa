//! Columns to packets.

use std::net::IpAddr;

use longhaul_wire::probe::{Cookie, Probe};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::ChunkReader;

use super::columns::{At, CLASSES, COLUMNS, Class, Kind};
use super::{ABOUT_KEY, About, HeaderLogError};
use crate::packet::{Ip, Options, Packet, Tcp, Transport, within_times};
use crate::parquet_file::{Budget, ParquetFile};
use crate::parquet_limits::guarded;
use crate::record::InterfaceDirection;

/// Letters of an Ethernet address.
const MAC_LETTERS: usize = "00:00:00:00:00:00".len();
/// Texts of a batch that are remembered, by where they lie.
const REMEMBERED: usize = 256;

/// One column of a batch: its values without nulls, and which rows have them.
#[derive(Debug)]
enum Data {
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Bools(Vec<bool>),
    Texts(Vec<ByteArray>),
}

/// Reads a header log, a batch of packets at a time, in memory that does not grow with the file.
pub struct HeaderLogReader<R: ChunkReader + 'static> {
    file: ParquetFile<R>,
    /// Where each column is in the file; `None` of one that it does not have.
    places: Vec<Option<usize>>,
    group: usize,
    rows_left: usize,
    readers: Vec<Option<ColumnReader>>,
    data: Vec<Data>,
    levels: [Vec<i16>; CLASSES],
    spare_levels: Vec<i16>,
    addresses: Remembered<IpAddr>,
    macs: Remembered<[u8; 6]>,
    /// An error came: what the columns' readers hold is of no use any more.
    failed: bool,
}

impl<R: ChunkReader + 'static> std::fmt::Debug for HeaderLogReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeaderLogReader").field("group", &self.group).finish_non_exhaustive()
    }
}

impl<R: ChunkReader + 'static> HeaderLogReader<R> {
    /// Opens a header log.
    ///
    /// # Errors
    /// Where it is none.
    pub fn new(input: R) -> Result<Self, HeaderLogError> {
        let file = ParquetFile::open(input)?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let mut places = Vec::new();
        for column in COLUMNS {
            let place = schema.columns().iter().position(|there| there.name() == column.name);
            if let Some(place) = place {
                let there = &schema.columns()[place];
                let wanted_level = i16::from(column.class != Class::Always);
                let right = there.max_def_level() == wanted_level
                    && there.max_rep_level() == 0
                    && there.physical_type() == physical(column.kind);
                if !right {
                    return Err(HeaderLogError::Column(column.name));
                }
            } else if column.class != Class::Snippet {
                return Err(HeaderLogError::Column(column.name));
            }
            places.push(place);
        }
        let data = COLUMNS.iter().map(|column| match column.kind {
            Kind::Time | Kind::Long => Data::Longs(Vec::new()),
            Kind::Int(_) => Data::Ints(Vec::new()),
            Kind::Bool => Data::Bools(Vec::new()),
            Kind::Mac | Kind::Address | Kind::Bytes => Data::Texts(Vec::new()),
        });
        Ok(Self {
            data: data.collect(),
            file,
            places,
            group: 0,
            rows_left: 0,
            readers: Vec::new(),
            levels: std::array::from_fn(|_| Vec::new()),
            spare_levels: Vec::new(),
            addresses: Remembered::default(),
            macs: Remembered::default(),
            failed: false,
        })
    }

    /// Reads it with what others have left of `budget`.
    ///
    /// # Errors
    /// It has more packets than that.
    pub(crate) fn within(self, budget: &Budget) -> Result<Self, HeaderLogError> {
        Ok(Self { file: self.file.within(budget)?, ..self })
    }

    /// Reads a log again that was counted in `budget`.
    pub(crate) fn again_within(self, budget: &Budget) -> Self {
        Self { file: self.file.again_within(budget), ..self }
    }

    /// Leaves out Ethernet addresses, which then read as zeros: a tenth of the time, where nobody asks for them.
    pub fn without_ethernet(mut self) -> Self {
        self.places[At::EthSrc as usize] = None;
        self.places[At::EthDst as usize] = None;
        self
    }

    /// Leaves out captured snippets.
    pub fn without_snippets(mut self) -> Self {
        self.places[At::Snippet as usize] = None;
        self
    }

    /// What the log says of itself; `None` where it says nothing that can be read.
    pub fn about(&self) -> Option<About> {
        let pairs = self.file.metadata().file_metadata().key_value_metadata()?;
        let text = pairs.iter().find(|pair| pair.key == ABOUT_KEY)?.value.as_deref()?;
        serde_json::from_str(text).ok()
    }

    /// Packets in the whole log.
    pub fn packets(&self) -> u64 {
        self.file.metadata().file_metadata().num_rows().try_into().unwrap_or(0)
    }

    /// Memory that reading its current packets takes, bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.file.held_bytes()
    }

    /// Whether it keeps captured snippets.
    pub fn has_snippets(&self) -> bool {
        self.places[At::Snippet as usize].is_some()
    }

    /// Puts the next packets into `packets`, in place of what is there; none at the end.
    ///
    /// # Errors
    /// Where the file is damaged.
    pub fn next_batch(&mut self, packets: &mut Vec<Packet>) -> Result<(), HeaderLogError> {
        packets.clear();
        if self.failed {
            return Err(HeaderLogError::Damaged);
        }
        let read = guarded(|| {
            let rows = self.load()?;
            if rows > 0 { self.assemble(rows, packets) } else { Ok(()) }
        });
        self.failed = read.is_err();
        read
    }

    /// The same with captured snippets, one for each packet: empty where none was kept.
    ///
    /// # Errors
    /// Where the file is damaged.
    pub fn next_batch_with_snippets(
        &mut self,
        packets: &mut Vec<Packet>,
        snippets: &mut Vec<ByteArray>,
    ) -> Result<(), HeaderLogError> {
        // They hold the pages of the batch before.
        snippets.clear();
        self.next_batch(packets)?;
        let bytes = self.texts(At::Snippet).iter().map(|snippet| snippet.len() as u64).sum();
        if !self.file.budget().add_snippets(bytes) {
            self.failed = true;
            return Err(HeaderLogError::Snippets);
        }
        let mut kept = self.texts(At::Snippet).iter();
        let levels = &self.levels[Class::Snippet as usize];
        for row in 0..packets.len() {
            let there = levels.get(row).is_some_and(|level| *level > 0);
            snippets.push(there.then(|| kept.next().cloned()).flatten().unwrap_or_else(|| ByteArray::from(Vec::new())));
        }
        Ok(())
    }

    /// Decodes the next rows of every column; how many.
    fn load(&mut self) -> Result<usize, HeaderLogError> {
        while self.rows_left == 0 {
            let wanted = |place| self.places.contains(&Some(place));
            let Some(group) = self.file.group(self.group, wanted)? else { return Ok(0) };
            self.rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            self.readers.clear();
            for place in &self.places {
                // A column that is null throughout costs nothing.
                let reader = place.filter(|place| {
                    let chunk = group.metadata().column(*place);
                    let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
                    nulls != Some(self.rows_left as u64) || self.rows_left == 0
                });
                self.readers.push(reader.map(|place| group.get_column_reader(place)).transpose()?);
            }
            self.group += 1;
        }
        let rows = self.rows_left.min(self.file.batch_rows());
        self.rows_left -= rows;
        let mut has_levels = [false; CLASSES];
        self.levels.iter_mut().for_each(Vec::clear);
        for (at, column) in COLUMNS.iter().enumerate() {
            let class = column.class as usize;
            let levels = if has_levels[class] { &mut self.spare_levels } else { &mut self.levels[class] };
            levels.clear();
            let (levels_read, values_read) = match &mut self.readers[at] {
                None => {
                    self.data[at].clear();
                    continue;
                }
                Some(reader) => self.data[at].read(reader, rows, levels)?,
            };
            if levels_read != rows || (column.class == Class::Always && values_read != rows) {
                return Err(HeaderLogError::Length(column.name));
            }
            if has_levels[class] && column.class != Class::Always && self.spare_levels != self.levels[class] {
                return Err(HeaderLogError::Length(column.name));
            }
            has_levels[class] = true;
        }
        Ok(rows)
    }

    fn ints(&self, at: At) -> &[i32] {
        if let Data::Ints(values) = &self.data[at as usize] { values } else { &[] }
    }

    fn longs(&self, at: At) -> &[i64] {
        if let Data::Longs(values) = &self.data[at as usize] { values } else { &[] }
    }

    fn bools(&self, at: At) -> &[bool] {
        if let Data::Bools(values) = &self.data[at as usize] { values } else { &[] }
    }

    fn texts(&self, at: At) -> &[ByteArray] {
        if let Data::Texts(values) = &self.data[at as usize] { values } else { &[] }
    }

    /// Puts the rows together, a class of columns at a time: each pass runs along few columns.
    fn assemble(&mut self, rows: usize, packets: &mut Vec<Packet>) -> Result<(), HeaderLogError> {
        self.frames(rows, packets);
        self.ethernet(packets)?;
        self.ips(packets)?;
        self.tcp(packets)?;
        self.udp(packets)
    }

    fn frames(&self, rows: usize, packets: &mut Vec<Packet>) {
        let int = |at: At| &self.ints(at)[..rows];
        let (times, interfaces, directions) = (&self.longs(At::Time)[..rows], int(At::Interface), int(At::Direction));
        let (lens, cap_lens, segs) = (int(At::FrameLen), int(At::FrameCapLen), int(At::GsoSegs));
        let (sizes, types) = (int(At::GsoSize), int(At::EthType));
        packets.extend((0..rows).map(|row| Packet {
            at_ns: within_times(times[row]),
            interface: interfaces[row] as u16,
            direction: match directions[row] {
                1 => InterfaceDirection::Inbound,
                2 => InterfaceDirection::Outbound,
                _ => InterfaceDirection::Unknown,
            },
            frame_len: lens[row] as u32,
            frame_cap_len: cap_lens[row] as u32,
            gso_segs: segs[row] as u16,
            gso_size: sizes[row] as u16,
            eth_src: [0; 6],
            eth_dst: [0; 6],
            eth_type: types[row] as u16,
            vlan: [None; 2],
            ip: None,
            transport: Transport::Other,
        }));
    }

    fn ethernet(&mut self, packets: &mut [Packet]) -> Result<(), HeaderLogError> {
        let mut macs = std::mem::take(&mut self.macs);
        macs.clear();
        for (class, at, source) in [(Class::EthSrc, At::EthSrc, true), (Class::EthDst, At::EthDst, false)] {
            for (packet, text) in rows_of(packets, &self.levels[class as usize]).zip(self.texts(at)) {
                let mac = macs.of(text, parse_mac).ok_or(HeaderLogError::Address(COLUMNS[at as usize].name))?;
                if source {
                    packet.eth_src = mac;
                } else {
                    packet.eth_dst = mac;
                }
            }
        }
        self.macs = macs;
        for (nth, (class, at)) in
            [(Class::Vlan, At::VlanId), (Class::InnerVlan, At::InnerVlanId)].into_iter().enumerate()
        {
            for (packet, id) in rows_of(packets, &self.levels[class as usize]).zip(self.ints(at)) {
                packet.vlan[nth] = Some(*id as u16);
            }
        }
        Ok(())
    }

    fn ips(&mut self, packets: &mut [Packet]) -> Result<(), HeaderLogError> {
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let levels = &self.levels[Class::Ip as usize];
        let count = self.texts(At::IpSrc).len();
        let int = |at: At| self.ints(at).get(..count).ok_or(HeaderLogError::Length(COLUMNS[at as usize].name));
        let more = self.bools(At::IpMoreFragments).get(..count).ok_or(HeaderLogError::Length("ip_flags_mf"))?;
        let (sources, destinations) = (self.texts(At::IpSrc), self.texts(At::IpDst));
        let destinations = destinations.get(..count).ok_or(HeaderLogError::Length("ip_dst"))?;
        let (protocols, ttls, fields) = (int(At::IpProto)?, int(At::IpTtl)?, int(At::IpDsfield)?);
        let (lens, offsets) = (int(At::IpLen)?, int(At::IpFragOffset)?);
        for (nth, packet) in rows_of(packets, levels).take(count).enumerate() {
            packet.ip = Some(Ip {
                src: addresses.of(&sources[nth], parse_ip).ok_or(HeaderLogError::Address("ip_src"))?,
                dst: addresses.of(&destinations[nth], parse_ip).ok_or(HeaderLogError::Address("ip_dst"))?,
                protocol: protocols[nth] as u8,
                ttl: ttls[nth] as u8,
                traffic_class: fields[nth] as u8,
                id: None,
                len: lens[nth] as u32,
                fragment_offset: offsets[nth] as u32,
                more_fragments: more[nth],
            });
        }
        self.addresses = addresses;
        for (packet, id) in rows_of(packets, &self.levels[Class::IpId as usize]).zip(self.ints(At::IpId)) {
            if let Some(ip) = &mut packet.ip {
                ip.id = Some(*id as u32);
            }
        }
        Ok(())
    }

    fn tcp(&self, packets: &mut [Packet]) -> Result<(), HeaderLogError> {
        let count = self.ints(At::TcpSeq).len();
        let length = |at: At| HeaderLogError::Length(COLUMNS[at as usize].name);
        let int = |at: At| self.ints(at).get(..count).ok_or(length(at));
        let bool = |at: At| self.bools(at).get(..count).ok_or(length(at));
        let (sources, destinations, seqs) = (int(At::TcpSrcPort)?, int(At::TcpDstPort)?, int(At::TcpSeq)?);
        let (acks, flags, windows, lens) =
            (int(At::TcpAck)?, int(At::TcpFlags)?, int(At::TcpWindow)?, int(At::TcpLen)?);
        let (clipped, permitted) = (bool(At::TcpClipped)?, bool(At::TcpSackPerm)?);
        for (nth, packet) in rows_of(packets, &self.levels[Class::Tcp as usize]).take(count).enumerate() {
            packet.transport = Transport::Tcp(Tcp {
                src_port: sources[nth] as u16,
                dst_port: destinations[nth] as u16,
                seq: seqs[nth] as u32,
                ack: acks[nth] as u32,
                flags: flags[nth] as u16,
                window: windows[nth] as u16,
                payload_len: lens[nth] as u32,
                options: Options { sack_permitted: permitted[nth], clipped: clipped[nth], ..Options::default() },
            });
        }
        self.options(packets, Class::Mss, At::TcpMss, At::TcpMss, |options, mss, _| options.mss = Some(mss as u16));
        self.options(packets, Class::WindowScale, At::TcpWscale, At::TcpWscale, |options, shift, _| {
            options.window_scale = Some(shift as u8);
        });
        self.options(packets, Class::Timestamps, At::TcpTsval, At::TcpTsecr, |options, value, echo| {
            options.timestamps = Some((value, echo));
        });
        let sacks = [
            (Class::Sack0, At::SackLe0, At::SackRe0),
            (Class::Sack1, At::SackLe1, At::SackRe1),
            (Class::Sack2, At::SackLe2, At::SackRe2),
            (Class::Sack3, At::SackLe3, At::SackRe3),
        ];
        for (nth, (class, left, right)) in sacks.into_iter().enumerate() {
            self.options(packets, class, left, right, |options, left, right| {
                options.sack[nth] = (left, right);
                options.sack_blocks = nth as u8 + 1;
            });
        }
        Ok(())
    }

    fn options(&self, packets: &mut [Packet], class: Class, a: At, b: At, mut set: impl FnMut(&mut Options, u32, u32)) {
        let values = self.ints(a).iter().zip(self.ints(b));
        for (packet, (a, b)) in rows_of(packets, &self.levels[class as usize]).zip(values) {
            if let Transport::Tcp(tcp) = &mut packet.transport {
                set(&mut tcp.options, *a as u32, *b as u32);
            }
        }
    }

    fn udp(&self, packets: &mut [Packet]) -> Result<(), HeaderLogError> {
        let count = self.ints(At::UdpLen).len();
        let int = |at: At| self.ints(at).get(..count).ok_or(HeaderLogError::Length(COLUMNS[at as usize].name));
        let (sources, destinations, lens) = (int(At::UdpSrcPort)?, int(At::UdpDstPort)?, int(At::UdpLen)?);
        for (nth, packet) in rows_of(packets, &self.levels[Class::Udp as usize]).take(count).enumerate() {
            packet.transport = Transport::Udp {
                src_port: sources[nth] as u16,
                dst_port: destinations[nth] as u16,
                payload_len: lens[nth] as u32,
                probe: None,
            };
        }
        let probes =
            self.ints(At::ProbeCookie).iter().zip(self.longs(At::ProbeSequence)).zip(self.longs(At::ProbeSent));
        for (packet, ((cookie, sequence), sent)) in rows_of(packets, &self.levels[Class::Probe as usize]).zip(probes) {
            if let Transport::Udp { probe, .. } = &mut packet.transport {
                let cookie = Cookie(*cookie as u32);
                *probe = Some(Probe { cookie, sequence: *sequence as u64, sent_ns: *sent as u64 });
            }
        }
        Ok(())
    }
}

/// The packets whose level says that a column of the class has a value for them.
#[inline]
fn rows_of<'a>(packets: &'a mut [Packet], levels: &'a [i16]) -> impl Iterator<Item = &'a mut Packet> {
    packets.iter_mut().zip(levels).filter_map(|(packet, level)| (*level > 0).then_some(packet))
}

impl Data {
    fn clear(&mut self) {
        match self {
            Self::Ints(values) => values.clear(),
            Self::Longs(values) => values.clear(),
            Self::Bools(values) => values.clear(),
            Self::Texts(values) => values.clear(),
        }
    }

    /// Reads `rows` of the column: how many levels there were, and how many values.
    fn read(
        &mut self,
        reader: &mut ColumnReader,
        rows: usize,
        levels: &mut Vec<i16>,
    ) -> Result<(usize, usize), HeaderLogError> {
        self.clear();
        let wrong = HeaderLogError::Column("of another kind than the schema says");
        match (self, reader) {
            (Self::Ints(values), ColumnReader::Int32ColumnReader(reader)) => {
                fill::<Int32Type>(reader, rows, levels, values)
            }
            (Self::Longs(values), ColumnReader::Int64ColumnReader(reader)) => {
                fill::<Int64Type>(reader, rows, levels, values)
            }
            (Self::Bools(values), ColumnReader::BoolColumnReader(reader)) => {
                fill::<BoolType>(reader, rows, levels, values)
            }
            (Self::Texts(values), ColumnReader::ByteArrayColumnReader(reader)) => {
                fill::<ByteArrayType>(reader, rows, levels, values)
            }
            _ => Err(wrong),
        }
    }
}

fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<(usize, usize), HeaderLogError> {
    let (mut records, mut value_count) = (0, 0);
    while records < rows {
        let (more, more_values, _) = reader.read_records(rows - records, Some(levels), None, values)?;
        if more == 0 {
            break;
        }
        records += more;
        value_count += more_values;
    }
    Ok((records, value_count))
}

fn physical(kind: Kind) -> parquet::basic::Type {
    match kind {
        Kind::Time | Kind::Long => parquet::basic::Type::INT64,
        Kind::Int(_) => parquet::basic::Type::INT32,
        Kind::Bool => parquet::basic::Type::BOOLEAN,
        Kind::Mac | Kind::Address | Kind::Bytes => parquet::basic::Type::BYTE_ARRAY,
    }
}

fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_mac(text: &[u8]) -> Option<[u8; 6]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAC_LETTERS)?;
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// What texts of this batch mean. Equal texts lie at the same place, in the dictionary of their page, which stays where it is for as
/// long as the batch holds on to it.
#[derive(Debug)]
struct Remembered<V> {
    slots: Vec<(usize, usize, Option<V>)>,
}

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<V: Copy> Remembered<V> {
    fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize_with(REMEMBERED, || (0, 0, None));
    }

    #[inline]
    fn of(&mut self, text: &ByteArray, parse: impl FnOnce(&[u8]) -> Option<V>) -> Option<V> {
        let bytes = text.data();
        let place = bytes.as_ptr() as usize;
        let slot = &mut self.slots[(place ^ place >> 8) % REMEMBERED];
        if (slot.0, slot.1) == (place, bytes.len())
            && let Some(value) = slot.2
        {
            return Some(value);
        }
        let value = parse(bytes)?;
        *slot = (place, bytes.len(), Some(value));
        Some(value)
    }
}
