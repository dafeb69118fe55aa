//! A spool as it is read: its files one after the other, one of them open, and their packets in order of time.

use std::collections::VecDeque;
use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;

use longhaul_units::regular_file;

use super::CaptureAccount;
use super::progress::{Counted, FILE_CHUNK, ReadBytes};
use crate::ledger::Ledger;
use crate::record::Record;
use crate::spool::{BlockReader, Kind, Meta, RecordBuffer, SpoolError};

/// The files of a spool that were not read to their end, and packets of those that were read.
pub(super) struct SpoolFiles {
    waiting: VecDeque<PathBuf>,
    open: Option<BlockReader<BufReader<Counted>>>,
    buffer: RecordBuffer,
    bytes: ReadBytes,
}

impl SpoolFiles {
    /// Of the files at `paths`, in this order.
    pub(super) fn at(paths: Vec<PathBuf>, bytes: ReadBytes) -> Self {
        Self { waiting: paths.into(), open: None, buffer: RecordBuffer::default(), bytes }
    }

    /// Of one file, which may be a pipe.
    pub(super) fn of(file: Counted) -> Self {
        let bytes = file.bytes.clone();
        Self { open: Some(reader(file)), ..Self::at(Vec::new(), bytes) }
    }

    /// Reads blocks until there are packets, or all is read. What else blocks say goes to `account`.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub(super) fn fill(&mut self, account: &mut CaptureAccount) -> Result<(), SpoolError> {
        let buffer = &mut self.buffer;
        loop {
            let Some(blocks) = &mut self.open else {
                let Some(path) = self.waiting.pop_front() else {
                    buffer.settle_all();
                    return Ok(());
                };
                match regular_file::open(&path) {
                    Ok(file) => self.open = Some(reader(Counted::new(file, self.bytes.clone()))),
                    // A capture that goes on removes its oldest files.
                    Err(error) if error.kind() == ErrorKind::NotFound => account.was_cut = true,
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            let Some(block) = blocks.next_block()? else {
                account.was_cut |= blocks.was_cut();
                self.open = None;
                continue;
            };
            match block.kind {
                Kind::Meta => {
                    let meta: Meta = block.json()?;
                    if account.meta.interfaces.is_empty() {
                        account.meta = meta;
                    }
                }
                Kind::Packets => {
                    let interface = account.meta.interfaces.get(usize::from(block.interface));
                    let mut packets = block.packets(interface.map(|interface| interface.link).unwrap_or_default());
                    while let Some(record) = packets.next()? {
                        buffer.push(&record);
                        account.ledger.written_packets += 1;
                    }
                    if buffer.is_full() {
                        buffer.settle(i64::MIN);
                    }
                }
                Kind::Ledger => {
                    // What is written is what is read: a file may say any number.
                    account.ledger.add(&Ledger { written_packets: 0, ..block.json()? });
                }
                Kind::Mark => account.marks.push(block.json()?),
                Kind::Tick => buffer.settle(block.first_ns),
                Kind::End | Kind::Pad => {}
            }
            if buffer.current().is_some() {
                return Ok(());
            }
        }
    }

    /// The current packet; `None` before [`Self::fill`], and after the last.
    pub(super) fn current(&self) -> Option<Record<'_>> {
        self.buffer.current()
    }

    /// Goes on to the next packet, if it was read.
    pub(super) fn advance(&mut self) {
        self.buffer.advance();
    }

    pub(super) fn late_packets(&self) -> u64 {
        self.buffer.late_packets()
    }

    /// Memory that reading takes, bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.buffer.held_bytes() + if self.open.is_some() { FILE_CHUNK as u64 } else { 0 }
    }

    /// All is read once more.
    pub(super) fn take_back(&self) {
        self.bytes.take_back();
    }
}

fn reader(file: Counted) -> BlockReader<BufReader<Counted>> {
    BlockReader::new(BufReader::with_capacity(FILE_CHUNK, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::ReadProgress;
    use crate::spool::{Interface, PacketBlock, control_block};

    /// A writer leaves their number 0.
    #[test]
    fn packets_are_written_that_are_read_whatever_the_ledger_says() {
        let meta = Meta { interfaces: vec![Interface::default()], ..Meta::default() };
        let ledger = Ledger { seen_packets: 3, written_packets: u64::MAX, ..Ledger::default() };
        let mut packets = PacketBlock::with_capacity(4096);
        for at_ns in [1, 2] {
            packets.push(&Record { at_ns, frame_len: 60, gso_segs: 1, ..Record::default() });
        }
        let mut bytes = control_block(Kind::Meta, 0, &meta);
        bytes.extend(control_block(Kind::Ledger, 0, &ledger));
        bytes.extend_from_slice(packets.finish());
        bytes.extend(control_block(Kind::Ledger, 0, &ledger));
        bytes.extend(control_block(Kind::End, 0, &()));
        let path = std::env::temp_dir().join(format!("longhaul-written-{}.spool", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let mut files = SpoolFiles::at(vec![path.clone()], ReadProgress::default().of_capture());
        let (mut account, mut read) = (CaptureAccount::default(), 0);
        files.fill(&mut account).unwrap();
        while files.current().is_some() {
            read += 1;
            files.advance();
        }
        std::fs::remove_file(path).unwrap();
        let Ledger { seen_packets, written_packets, .. } = account.ledger;
        assert_eq!((read, seen_packets, written_packets), (2, 6, 2));
    }
}
