//! Writing pcapng: nanoseconds, little-endian, one section.
//!
//! The format has no field for what a super-packet stands for, so a comment says it: `gso_segs=45 gso_size=1448`, which Wireshark
//! shows and [`Reader`](super::Reader) reads back.

use std::io::{self, Write};

use super::{BYTE_ORDER, ENHANCED_PACKET, INTERFACE, Interface, MOST_CAPTURED, SECTION, option, padded};
use crate::record::{InterfaceDirection, Record};

/// Writes a pcapng file.
#[derive(Debug)]
pub struct Writer<W> {
    stream: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file with packets of `interfaces`; `application` says what writes it. `stream` should be buffered.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn new(stream: W, application: &str, interfaces: &[Interface]) -> io::Result<Self> {
        let mut writer = Self { stream, block: Vec::new() };
        writer.begin(SECTION);
        writer.u32(BYTE_ORDER);
        writer.u32(1);
        // The section's length is not known.
        writer.block.extend_from_slice(&[0xff; 8]);
        // shb_userappl
        writer.option(4, application.as_bytes());
        writer.end()?;
        for interface in interfaces {
            writer.begin(INTERFACE);
            writer.u32(interface.link.number().into());
            writer.u32(interface.snap_len);
            if let Some(name) = &interface.name {
                writer.option(option::NAME, name.as_bytes());
            }
            writer.option(option::RESOLUTION, &[9]);
            writer.end()?;
        }
        Ok(writer)
    }

    /// Writes a packet's snippet, of the interface that it names, with `comment` where it is not empty. The format has times from
    /// 1970 on; earlier ones become that.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&mut self, record: &Record<'_>, comment: &str) -> io::Result<()> {
        let snippet = &record.snippet[..record.snippet.len().min(MOST_CAPTURED as usize)];
        let at_ns = record.at_ns.max(0) as u64;
        self.begin(ENHANCED_PACKET);
        self.u32(record.interface.into());
        self.u32((at_ns >> 32) as u32);
        self.u32(at_ns as u32);
        self.u32(snippet.len() as u32);
        self.u32(record.frame_len.max(snippet.len() as u32));
        self.block.extend_from_slice(snippet);
        self.block.resize(28 + padded(snippet.len() as u32), 0);
        match record.direction {
            InterfaceDirection::Unknown => {}
            InterfaceDirection::Inbound => self.option(option::FLAGS, &1_u32.to_le_bytes()),
            InterfaceDirection::Outbound => self.option(option::FLAGS, &2_u32.to_le_bytes()),
        }
        if record.gso_segs != 0 || record.gso_size != 0 {
            let text = format!("gso_segs={} gso_size={}", record.gso_segs, record.gso_size);
            self.option(option::COMMENT, text.as_bytes());
        }
        if !comment.is_empty() {
            self.option(option::COMMENT, comment.as_bytes());
        }
        self.end()
    }

    /// Flushes what is written to.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    /// What was written to, unflushed.
    pub fn into_inner(self) -> W {
        self.stream
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    /// Of a value that is too long, its beginning.
    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX) - 3)];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn end(&mut self) -> io::Result<()> {
        // The end of options, needed only where there are some and harmless elsewhere.
        self.u32(0);
        let len = (self.block.len() + 4) as u32;
        self.u32(len);
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.stream.write_all(&self.block)
    }
}

/// What a comment says of a super-packet, if it is of the form that [`Writer`] writes.
pub(super) fn parse_super_packet(comment: &[u8], record: &mut Record<'_>) {
    let Ok(text) = std::str::from_utf8(comment) else { return };
    let Some((segs, size)) = text.strip_prefix("gso_segs=").and_then(|rest| rest.split_once(" gso_size=")) else {
        return;
    };
    if let (Ok(segs), Ok(size)) = (segs.parse(), size.parse()) {
        (record.gso_segs, record.gso_size) = (segs, size);
    }
}
