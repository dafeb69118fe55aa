//! pcapng files (draft-ietf-opsawg-pcapng): several interfaces with clocks of their own resolution, directions, counts of drops,
//! comments.
//!
//! ```text
//! block:   type 4 │ total length 4 │ body, to a multiple of 4 │ total length 4
//! option:  code 2 │ length 2 │ value, to a multiple of 4          ended by code 0
//! ```
//! Read are section headers, interface descriptions, packets in their three forms (enhanced, simple, obsolete) and interface
//! statistics; blocks of other types are passed over. Interfaces of all sections are numbered through.

mod writer;

use std::io::Read;

use crate::bytes::Order;
use crate::input::Input;
use crate::pcap::{MOST_CAPTURED, ReadError};
use crate::record::{InterfaceDirection, LinkType, Record};

pub use writer::Writer;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Blocks that are looked into are not longer: a packet, and options.
const MOST_BLOCK: u32 = MOST_CAPTURED + (1 << 17);
/// As many as a record's number tells apart.
const MOST_INTERFACES: usize = 1 << 16;
/// Bytes of an interface's name that are kept.
const MOST_NAME: usize = 128;
/// Bytes of all names of a file that are kept: 1,024 of the longest. Interfaces whose names have no room have their numbers alone; files of
/// real captures describe few, or, put together of many files, some thousands of short names.
const MOST_NAMES: usize = 1_024 * MOST_NAME;

/// Options by their codes.
mod option {
    pub(super) const COMMENT: u16 = 1;
    /// Of a packet.
    pub(super) const FLAGS: u16 = 2;
    /// Of an interface.
    pub(super) const NAME: u16 = 2;
    pub(super) const RESOLUTION: u16 = 9;
    pub(super) const FCS_LEN: u16 = 13;
    pub(super) const OFFSET: u16 = 14;
    /// Of statistics.
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
    pub(super) const OS_DROPPED: u16 = 7;
}

/// An interface, as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    /// Its name, where the file says.
    pub name: Option<String>,
    /// What its packets begin with.
    pub link: LinkType,
    /// Bytes of a packet that were captured at most; 0 is no limit.
    pub snap_len: u32,
    /// Packets that it received in all (`isb_ifrecv`).
    pub received_packets: Option<u64>,
    /// Packets that it dropped for lack of room (`isb_ifdrop`).
    pub dropped_packets: Option<u64>,
    /// Packets that the system dropped (`isb_osdrop`).
    pub os_dropped_packets: Option<u64>,
    resolution: Resolution,
    offset_s: i64,
    fcs_len: u32,
}

/// How long the unit of a time stamp is (`if_tsresol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    /// So many nanoseconds.
    Nanoseconds(u32),
    /// So many in a nanosecond.
    InNanosecond(u64),
    /// 2 to the minus this of a second.
    Binary(u8),
}

impl Default for Resolution {
    fn default() -> Self {
        Self::Nanoseconds(1_000)
    }
}

impl Resolution {
    fn from_option(value: u8) -> Option<Self> {
        match value {
            0..=9 => Some(Self::Nanoseconds(10_u32.pow(9 - u32::from(value)))),
            10..=27 => Some(Self::InNanosecond(10_u64.pow(u32::from(value) - 9))),
            0x80..=0xbf => Some(Self::Binary(value & 0x7f)),
            _ => None,
        }
    }

    #[inline]
    fn nanoseconds(self, units: u64) -> i64 {
        match self {
            Self::Nanoseconds(1) => i64::try_from(units).unwrap_or(i64::MAX),
            Self::Nanoseconds(long) => i64::try_from(u128::from(units) * u128::from(long)).unwrap_or(i64::MAX),
            Self::InNanosecond(many) => (units / many) as i64,
            Self::Binary(bits) => i64::try_from((u128::from(units) * 1_000_000_000) >> bits).unwrap_or(i64::MAX),
        }
    }
}

/// Reads a pcapng file, packet by packet.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    order: Order,
    interfaces: Vec<Interface>,
    /// Of all their names.
    name_bytes: usize,
    /// The number of the section's first interface.
    section_base: usize,
    /// Of the packet before: a simple packet has none.
    last_ns: i64,
    /// Packets lost before one that was captured, as packets themselves say.
    dropped_packets: u64,
    cut: bool,
}

/// A packet's place in its block.
struct Found {
    at_ns: i64,
    interface: usize,
    original: u32,
    captured: u32,
    /// From the block's beginning.
    data: usize,
}

impl<R: Read> Reader<R> {
    /// A reader at the beginning of `stream`, which need not be buffered.
    ///
    /// # Errors
    /// Where it cannot be read or is no pcapng file.
    pub fn new(stream: R) -> Result<Self, ReadError> {
        Self::over(Input::new(stream))
    }

    pub(crate) fn over(mut input: Input<R>) -> Result<Self, ReadError> {
        let header = input.at_least(12)?;
        if header.len() < 12 || Order::Little.u32(header, 0) != SECTION {
            return Err(ReadError::NotACapture(header[..header.len().min(4)].to_vec()));
        }
        Ok(Self {
            input,
            order: Order::Little,
            interfaces: Vec::new(),
            name_bytes: 0,
            section_base: 0,
            last_ns: 0,
            dropped_packets: 0,
            cut: false,
        })
    }

    /// The interfaces that were described so far, in the order of their numbers.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Memory for the interfaces, beside their names, bytes.
    pub(crate) fn interface_bytes(&self) -> u64 {
        (self.interfaces.capacity() * size_of::<Interface>()) as u64
    }

    /// Packets that the packets themselves say were lost before them (`epb_dropcount`, and the obsolete packet's field).
    pub fn dropped_packets(&self) -> u64 {
        self.dropped_packets
    }

    /// Whether the file ended within a block.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The next packet's snippet; `None` at the end.
    ///
    /// # Errors
    /// Where the file cannot be read or a length or number in it cannot be.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let (found, len) = loop {
            let Some((kind, len)) = self.block()? else { return Ok(None) };
            let found = match kind {
                ENHANCED_PACKET | OBSOLETE_PACKET => Some(self.packet(kind, len)?),
                SIMPLE_PACKET => Some(self.simple_packet(len)?),
                _ => None,
            };
            match (found, kind) {
                (Some(found), _) => break (found, len),
                (None, SECTION) => self.section_base = self.interfaces.len(),
                (None, INTERFACE) => self.describe(len)?,
                (None, STATISTICS) => self.statistics(len),
                _ => {}
            }
            self.input.take(len);
        };
        self.last_ns = found.at_ns;
        let interface = &self.interfaces[found.interface];
        let block = self.input.take(len);
        let options = block.get(found.data + padded(found.captured)..len - 4).unwrap_or(&[]);
        let mut record = Record {
            at_ns: found.at_ns,
            interface: found.interface as u16,
            direction: InterfaceDirection::Unknown,
            link: interface.link,
            frame_len: found.original.max(found.captured).saturating_sub(interface.fcs_len),
            gso_segs: 0,
            gso_size: 0,
            snippet: &block[found.data..found.data + found.captured as usize],
        };
        record.snippet = &record.snippet[..record.snippet.len().min(record.frame_len as usize)];
        for (code, value) in (Options { order: self.order, bytes: options }) {
            match code {
                option::FLAGS if value.len() == 4 => {
                    record.direction = match self.order.u32(value, 0) & 3 {
                        1 => InterfaceDirection::Inbound,
                        2 => InterfaceDirection::Outbound,
                        _ => InterfaceDirection::Unknown,
                    };
                }
                option::COMMENT => writer::parse_super_packet(value, &mut record),
                4 if value.len() == 8 => {
                    self.dropped_packets = self.dropped_packets.saturating_add(self.order.u64(value, 0));
                }
                _ => {}
            }
        }
        Ok(Some(record))
    }

    /// Brings the next block that is looked into whole into the input: its type and length. `None` at the end.
    fn block(&mut self) -> Result<Option<(u32, usize)>, ReadError> {
        loop {
            let at = self.input.consumed();
            let damaged = |what| Err(ReadError::Damaged { at, what });
            let header = self.input.at_least(12)?;
            if header.len() < 12 {
                self.cut |= !header.is_empty();
                return Ok(None);
            }
            let kind = self.order.u32(header, 0);
            if kind == SECTION {
                // The same in both orders; its third word tells which.
                self.order = match Order::Little.u32(header, 8) {
                    BYTE_ORDER => Order::Little,
                    other if other.swap_bytes() == BYTE_ORDER => Order::Big,
                    _ => return damaged("a section without its mark of byte order"),
                };
            }
            let len = self.order.u32(header, 4);
            if len < 12 || !len.is_multiple_of(4) {
                return damaged("a block with a length that cannot be");
            }
            if !matches!(kind, SECTION | INTERFACE | OBSOLETE_PACKET | SIMPLE_PACKET | STATISTICS | ENHANCED_PACKET) {
                if !self.input.skip(len.into())? {
                    self.cut = true;
                    return Ok(None);
                }
                continue;
            }
            if len > MOST_BLOCK {
                return damaged("a block of more than a megabyte");
            }
            let len = len as usize;
            if self.input.at_least(len)?.len() < len {
                self.cut = true;
                return Ok(None);
            }
            return Ok(Some((kind, len)));
        }
    }

    fn damaged<T>(&self, what: &'static str) -> Result<T, ReadError> {
        Err(ReadError::Damaged { at: self.input.consumed(), what })
    }

    /// Type 4, length 4, interface 4 (obsolete: 2, and drops 2), time 4+4, captured 4, original 4, data.
    fn packet(&mut self, kind: u32, len: usize) -> Result<Found, ReadError> {
        const DATA: usize = 28;
        let (order, block) = (self.order, self.input.peek());
        if len < DATA + 4 {
            return self.damaged("a packet's block that is too short");
        }
        let local = if kind == ENHANCED_PACKET {
            order.u32(block, 8)
        } else {
            let drops = order.u16(block, 10);
            // 0xffff: not known.
            let drops = if drops == u16::MAX { 0 } else { u64::from(drops) };
            self.dropped_packets = self.dropped_packets.saturating_add(drops);
            order.u16(block, 8).into()
        };
        let units = u64::from(order.u32(block, 12)) << 32 | u64::from(order.u32(block, 16));
        let (captured, original) = (order.u32(block, 20), order.u32(block, 24));
        if captured as usize > len - DATA - 4 {
            return self.damaged("a packet that is longer than its block");
        }
        let index = self.section_base.saturating_add(local as usize);
        let Some(interface) = self.interfaces.get(index) else {
            return self.damaged("a packet of an interface that was not described");
        };
        let at_ns =
            interface.resolution.nanoseconds(units).saturating_add(interface.offset_s.saturating_mul(1_000_000_000));
        Ok(Found { at_ns, interface: index, original, captured, data: DATA })
    }

    /// Type 4, length 4, original 4, data; of the section's first interface.
    fn simple_packet(&self, len: usize) -> Result<Found, ReadError> {
        const DATA: usize = 12;
        let Some(interface) = self.interfaces.get(self.section_base) else {
            return self.damaged("a packet of an interface that was not described");
        };
        if len < DATA + 4 {
            return self.damaged("a packet's block that is too short");
        }
        let original = self.order.u32(self.input.peek(), 8);
        let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let captured = original.min(snap_len).min((len - DATA - 4) as u32);
        Ok(Found { at_ns: self.last_ns, interface: self.section_base, original, captured, data: DATA })
    }

    /// Type 4, length 4, link type 2, reserved 2, snap length 4, options.
    fn describe(&mut self, len: usize) -> Result<(), ReadError> {
        let (order, block) = (self.order, self.input.peek());
        if len < 20 {
            return self.damaged("an interface's block that is too short");
        }
        if self.interfaces.len() >= MOST_INTERFACES {
            return self.damaged("more than 65,536 interfaces");
        }
        let mut interface = Interface {
            link: LinkType::from_number(order.u16(block, 8)),
            snap_len: order.u32(block, 12),
            ..Interface::default()
        };
        for (code, value) in (Options { order, bytes: &block[16..len - 4] }) {
            match (code, value.len()) {
                (option::NAME, _) => {
                    let name = String::from_utf8_lossy(&value[..value.len().min(MOST_NAME)]);
                    let name = name.trim_end_matches('\0');
                    let has_room = self.name_bytes + name.len() <= MOST_NAMES;
                    interface.name = has_room.then(|| name.to_owned());
                }
                (option::RESOLUTION, 1) => match Resolution::from_option(value[0]) {
                    Some(resolution) => interface.resolution = resolution,
                    None => return self.damaged("a clock finer than can be"),
                },
                (option::OFFSET, 8) => interface.offset_s = order.u64(value, 0) as i64,
                (option::FCS_LEN, 1) => interface.fcs_len = value[0].into(),
                _ => {}
            }
        }
        self.name_bytes += interface.name.as_ref().map_or(0, String::len);
        self.interfaces.push(interface);
        Ok(())
    }

    /// Type 4, length 4, interface 4, time 4+4, options.
    fn statistics(&mut self, len: usize) {
        let (order, block) = (self.order, self.input.peek());
        let Some(options) = block.get(20..len.saturating_sub(4)) else { return };
        let index = self.section_base.saturating_add(order.u32(block, 8) as usize);
        let Some(interface) = self.interfaces.get_mut(index) else { return };
        for (code, value) in (Options { order, bytes: options }) {
            if value.len() == 8 {
                let counter = match code {
                    option::RECEIVED => &mut interface.received_packets,
                    option::DROPPED => &mut interface.dropped_packets,
                    option::OS_DROPPED => &mut interface.os_dropped_packets,
                    _ => continue,
                };
                *counter = Some(order.u64(value, 0));
            }
        }
    }
}

/// `bytes` to a multiple of four.
fn padded(bytes: u32) -> usize {
    (bytes as usize).next_multiple_of(4)
}

/// Walks options. What is malformed ends them.
struct Options<'a> {
    order: Order,
    bytes: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.len() < 4 {
            return None;
        }
        let (code, len) = (self.order.u16(self.bytes, 0), self.order.u16(self.bytes, 2));
        let value = self.bytes.get(4..4 + usize::from(len)).filter(|_| code != 0)?;
        self.bytes = self.bytes.get(4 + padded(len.into())..).unwrap_or(&[]);
        Some((code, value))
    }
}

#[cfg(test)]
mod tests;
