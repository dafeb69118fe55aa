//! Progress of reading captures, on a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use longhaul_captures::Packet;
use longhaul_captures::reader::ReadProgress;

use crate::captures::source::Trace;
use crate::output::Failure;
use longhaul_kernel::stderr_text;

/// How often progress is shown on a terminal.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
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
