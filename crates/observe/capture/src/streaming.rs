//! The streaming thread: writes packets in order of time as pcapng to stdout, while the capture runs.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use longhaul_captures::LinkType;
use longhaul_captures::ledger::{DroppedAt, Gap};
use longhaul_captures::pcapng;
use longhaul_captures::spool::{Interface, Meta, PacketBlock, Packets, RecordBuffer};
use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::wait::writable_until;
use longhaul_units::Nanos;

use crate::blocks::{Pool, ToWriter};
use crate::counters::Counters;
use crate::writing::Written;

/// A pipe that is ready to be written has room for this much: PIPE_BUF, pipe(7).
const PIPE_BYTES: usize = 4096;
/// How often a full pipe is looked at, and whether the capture shall end.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);
/// How long a full pipe may delay the end of the capture.
const GRACE: Nanos = Nanos::from_secs(1);
/// Packets that wait for older ones at most.
const WAITING_MOST: usize = 1 << 18;
/// Packets dropped less than this apart make one gap.
const JOINED_NS: i64 = 1_000_000_000;

pub(crate) struct Streamer {
    pub(crate) from_reader: Receiver<ToWriter>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stream: Arc<OwnedFd>,
    /// The user ends the capture.
    pub(crate) stop: Arc<AtomicBool>,
    /// Set when nobody reads the stream any more.
    pub(crate) done: Arc<AtomicBool>,
    pub(crate) meta: Meta,
}

impl Drop for Streamer {
    fn drop(&mut self) {
        // However it ends, nobody must wait for a block forever.
        self.pool.close();
    }
}

/// A pcapng stream, and the packets on their way into it.
struct Output {
    /// `None` after the first error: nothing more is written then.
    writer: Option<pcapng::Writer<BufWriter<Paced>>>,
    waiting: RecordBuffer,
    /// Packets since the last flush.
    unflushed: Option<Gap>,
    written: Written,
}

impl Streamer {
    /// Runs until the reading thread has ended.
    pub(crate) fn run(self) -> Written {
        let mut output = Output {
            writer: None,
            waiting: RecordBuffer::with_most(WAITING_MOST),
            unflushed: None,
            written: Written::default(),
        };
        match self.begin() {
            Ok(writer) => output.writer = Some(writer),
            Err(error) => self.give_up(&error, &mut output),
        }
        self.write_settled(&mut output);
        while let Ok(message) = self.from_reader.recv() {
            match message {
                ToWriter::Block(mut block) => {
                    self.take_in(&block, &mut output);
                    block.reset(0);
                    self.pool.put(block);
                }
                ToWriter::Tick(watermark_ns) => {
                    output.waiting.settle(watermark_ns);
                    self.write_settled(&mut output);
                }
                // pcapng has no place for these; the result has them.
                ToWriter::Ledger(_) | ToWriter::Mark(_) | ToWriter::Cut => {}
            }
        }
        output.waiting.settle_all();
        self.write_settled(&mut output);
        Counters::add(&self.counters.cpu_ns, thread_cpu_time().0);
        output.written
    }

    fn begin(&self) -> io::Result<pcapng::Writer<BufWriter<Paced>>> {
        let described = |interface: &Interface| {
            let mut described = pcapng::Interface::default();
            described.link = interface.link;
            described.name = Some(interface.name.clone());
            described
        };
        let interfaces: Vec<_> = self.meta.interfaces.iter().map(described).collect();
        let stream = Paced {
            stream: File::from(self.stream.try_clone()?),
            stop: Arc::clone(&self.stop),
            give_up_at: None,
            counters: Arc::clone(&self.counters),
        };
        pcapng::Writer::new(BufWriter::with_capacity(64 << 10, stream), &self.meta.captured_by, &interfaces)
    }

    fn take_in(&self, block: &PacketBlock, output: &mut Output) {
        let interface = block.interface();
        let link = self.meta.interfaces.get(usize::from(interface)).map_or(LinkType::Ethernet, |known| known.link);
        let mut packets = Packets::of_body(block.body(), block.packets(), block.span_ns().0, interface, link);
        // The reading thread of this process packed it: there is no error to expect.
        while let Ok(Some(record)) = packets.next() {
            output.waiting.push(&record);
            if output.waiting.is_full() {
                output.waiting.settle(i64::MIN);
                self.write_settled(output);
            }
        }
    }

    /// Writes the packets that no older one can follow.
    fn write_settled(&self, output: &mut Output) {
        let Output { writer, waiting, unflushed, .. } = output;
        let mut outcome = Ok(());
        while let Some(record) = waiting.current() {
            let packets = unflushed.as_ref().map_or(0, |gap| gap.packets) + 1;
            let from_ns = unflushed.as_ref().map_or(record.at_ns, |gap| gap.from_ns);
            *unflushed = Some(Gap { place: DroppedAt::Disk, interface: None, from_ns, to_ns: record.at_ns, packets });
            if let Some(writer) = writer
                && outcome.is_ok()
            {
                outcome = writer.write(&record, "");
            }
            waiting.advance();
        }
        if let Some(writer) = writer {
            outcome = outcome.and_then(|()| writer.flush());
        }
        if let Err(error) = outcome {
            self.give_up(&error, output);
        }
        let Some(gap) = output.unflushed.take() else { return };
        if output.writer.is_some() {
            Counters::add(&self.counters.written_packets, gap.packets);
        } else {
            output.written.ledger.drop_packets(gap, JOINED_NS);
            self.counters.dropped_at(DroppedAt::Disk, gap.packets);
        }
    }

    /// Ends the capture: nothing more can be written.
    fn give_up(&self, error: &io::Error, output: &mut Output) {
        output.written.disk_error = Some(match error.kind() {
            ErrorKind::BrokenPipe => "the program that read stdout has ended".into(),
            ErrorKind::TimedOut => "the program that reads stdout has stopped reading".into(),
            _ => format!("stdout cannot be written: {error}"),
        });
        output.writer = None;
        self.done.store(true, Ordering::Release);
    }
}

/// Writes to a pipe without waiting in the kernel, where the end of the capture would not be noticed.
struct Paced {
    stream: File,
    stop: Arc<AtomicBool>,
    /// The user has ended the capture: until then a full pipe may become empty.
    give_up_at: Option<Nanos>,
    counters: Arc<Counters>,
}

impl Write for Paced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !writable_until(&self.stream, Some(monotonic().saturating_add(LOOK_EVERY)))? {
            if self.stop.load(Ordering::Acquire) {
                let now = monotonic();
                if now >= *self.give_up_at.get_or_insert(now.saturating_add(GRACE)) {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
        let written = self.stream.write(&bytes[..bytes.len().min(PIPE_BYTES)])?;
        Counters::add(&self.counters.written_bytes, written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
