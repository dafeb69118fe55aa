//! What is said while a TCP test runs.

use longhaul_measure::client::{Live as Progressed, SenderNow};
use longhaul_session::control::Progress;
use longhaul_units::{BitRate, Bytes, Nanos};

use super::udp_live::Show;
use crate::output::print_text;
use longhaul_report::text::{rate, short};

/// Says what comes, each interval.
#[derive(Debug)]
pub(crate) struct Live {
    show: Show,
    /// Of the other end, which receives forward, and of this one.
    before: [Progress; 2],
    sender: SenderNow,
    written_over: bool,
}

impl Live {
    pub(crate) fn new(show: Show) -> Self {
        Self { show, before: [Progress::default(); 2], sender: SenderNow::default(), written_over: false }
    }

    pub(crate) fn take(&mut self, live: &Progressed) {
        let before = &mut self.before[usize::from(live.own)];
        let line = line(live, before, &self.sender);
        *before = live.progress;
        self.sender = live.sender.unwrap_or(self.sender);
        match self.show {
            Show::Nothing | Show::Objects => {}
            Show::Lines => print_text(&(line + "\n")),
            Show::LinesBeside => eprintln!("{line}"),
            Show::Terminal => {
                eprint!("\r{line:<80}");
                self.written_over = true;
            }
        }
    }

    /// Wipes the line that was written over, so that the result begins where it stood.
    pub(crate) fn end(&mut self) {
        if self.written_over {
            eprint!("\r{:80}\r", "");
        }
    }
}

/// Fits a line of 80 characters.
fn line(live: &Progressed, before: &Progress, sender: &SenderNow) -> String {
    let now = &live.progress;
    let span = Nanos(now.elapsed_ns.saturating_sub(before.elapsed_ns));
    let goodput = BitRate::of(now.payload_bytes.saturating_sub(before.payload_bytes), span);
    let direction = if live.own { "backward" } else { "forward" };
    let mut line = format!("{direction:<8}{:>7.1} s {:>12}/s", now.elapsed_ns as f64 / 1e9, rate(goodput));
    if let Some(now) = live.sender {
        let again = now.retransmits.saturating_sub(sender.retransmits);
        line += &format!("{again:>8} again  cwnd {:>7}  rtt {:>6}", Bytes(now.cwnd_bytes).rounded(), short(now.rtt_ns));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_changed() {
        let before = Progress { elapsed_ns: 1_000_000_000, payload_bytes: 1_000_000, ..Progress::default() };
        let progress = Progress { elapsed_ns: 2_000_000_000, payload_bytes: 3_000_000, ..Progress::default() };
        let sender = SenderNow { retransmits: 12, cwnd_bytes: 26 << 20, rtt_ns: 74_600_000 };
        let live = Progressed { own: false, progress, sender: Some(sender) };
        let line = line(&live, &before, &SenderNow { retransmits: 5, ..sender });
        assert_eq!(line, "forward     2.0 s    16.0 Mbit/s       7 again  cwnd 26.0MiB  rtt 74.6ms");
        assert!(line.chars().count() <= 80);
    }
}
