//! Progress of reading captures, on a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use longhaul_captures::Packet;
use longhaul_captures::reader::ReadProgress;
use longhaul_flows::{FlowOptions, Flows, Sink};

use crate::captures::source::Trace;
use crate::output::Failure;
use longhaul_kernel::stderr_text;

/// How often progress is shown on a terminal.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Packets of a pipe between looks at how much was read of it.
const ALLOWED_PACKETS: u64 = 1 << 12;
/// Packets between looks at the clock.
const PROGRESS_PACKETS: u64 = 1 << 16;

/// Hands all packets to `each`, and shows the progress on a terminal.
pub(crate) fn pass(trace: &mut Trace, mut each: impl FnMut(&Packet)) -> Result<(), Failure> {
    let mut shown = Progress::of(&[trace.progress()]);
    trace.for_each(|packet| {
        each(packet);
        shown.packet();
    })
}

/// Hands all packets to `flows`, and shows the progress on a terminal.
pub(crate) fn pass_to(trace: &mut Trace, flows: &mut Flows<impl Sink>) -> Result<(), Failure> {
    let piped = trace.is_piped().then(|| trace.progress());
    let memory_most = trace.memory_most();
    let mut packets = 0_u64;
    pass(trace, |packet| {
        if let Some(piped) = &piped
            && packets.is_multiple_of(ALLOWED_PACKETS)
        {
            flows.allow(FlowOptions::for_bytes(piped.read_bytes()).in_memory(memory_most));
        }
        packets += 1;
        flows.packet(packet);
    })
}

/// Shows on a terminal how much has been read.
pub(crate) struct Progress {
    read: Vec<ReadProgress>,
    is_shown: bool,
    last: Instant,
    packets: u64,
}

impl Progress {
    pub(crate) fn of(read: &[ReadProgress]) -> Self {
        Self { read: read.to_vec(), is_shown: std::io::stderr().is_terminal(), last: Instant::now(), packets: 0 }
    }

    #[inline]
    pub(crate) fn packet(&mut self) {
        self.packets += 1;
        if self.is_shown && self.packets.is_multiple_of(PROGRESS_PACKETS) && self.last.elapsed() > PROGRESS_EVERY {
            self.last = Instant::now();
            let share = self.read.iter().map(ReadProgress::share).sum::<f64>() / self.read.len() as f64;
            stderr_text!("\r{:3.0} %  {} packets ", share * 100.0, self.packets);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown && self.packets > PROGRESS_PACKETS {
            stderr_text!("\r{:40}\r", "");
        }
    }
}
