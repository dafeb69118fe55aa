//! The text and the caveats of `longhaul log`: a line as each capture ends, all of them at the end.

use crate::caveats;
use std::net::SocketAddr;

use longhaul_capture::{LogResult, Logged, LoggedEnd};
use longhaul_result::{Caveat, CaveatCode};
use longhaul_session::SessionError;
use longhaul_units::Bytes;

/// Captures that the account keeps; further ones are only counted.
const CAPTURES_MOST: usize = 10_000;

/// Gaps and marks that the account keeps of all captures together. The captures' own files have them, too.
const MOMENTS_MOST: usize = 200_000;

/// All captures so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    captures: Vec<(SocketAddr, Logged)>,
    /// Gaps and marks of them.
    moments: usize,
    moments_left_out: usize,
    more_captures: u64,
    refused_connections: u64,
}

impl Account {
    /// Adds a connection that ended; returns a line about it.
    pub(crate) fn enter(&mut self, peer: SocketAddr, ended: Result<Logged, SessionError>) -> String {
        match ended {
            Err(error) => {
                self.refused_connections += 1;
                format!("{peer}: {} ({})", error.message, error.code)
            }
            Ok(mut logged) => {
                let line = line(peer, &logged);
                if self.captures.len() < CAPTURES_MOST {
                    self.bound(&mut logged);
                    self.captures.push((peer, logged));
                } else {
                    self.more_captures += 1;
                }
                line
            }
        }
    }

    /// A client says how many gaps it has: they may not fill this host's memory.
    fn bound(&mut self, logged: &mut Logged) {
        let all = logged.ledger.gaps.len() + logged.marks.len();
        logged.ledger.gaps.truncate(MOMENTS_MOST - self.moments);
        logged.marks.truncate(MOMENTS_MOST - self.moments - logged.ledger.gaps.len());
        logged.ledger.gaps.shrink_to_fit();
        logged.marks.shrink_to_fit();
        let kept = logged.ledger.gaps.len() + logged.marks.len();
        self.moments += kept;
        self.moments_left_out += all - kept;
    }

    pub(crate) fn result(&self) -> LogResult {
        LogResult {
            captures: self.captures.iter().map(|(peer, logged)| logged.result(*peer)).collect(),
            more_captures: self.more_captures,
            refused_connections: self.refused_connections,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (peer, logged) in &self.captures {
            text += &format!("{}\n", line(*peer, logged));
        }
        if self.captures.is_empty() {
            text += "no captures\n";
        }
        text
    }

    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let mut warn = |code: CaveatCode, message: String, remedy: &str| {
            caveats.push(Caveat::new(code, message, remedy));
        };
        if self.moments_left_out > 0 {
            let message = format!("{} gaps and marks are not in this result", self.moments_left_out);
            warn(caveats::MOMENTS_LEFT_OUT, message, "the files of the captures have them");
        }
        for (peer, logged) in &self.captures {
            if let LoggedEnd::Vanished(why) = &logged.end {
                let message = format!("{peer}: the capture vanished: {why}; its last packets are not in the account");
                warn(caveats::CAPTURE_VANISHED, message, "check that its host and the path to it are up");
            }
            let lost = logged.counts.lost_snippets;
            if lost > 0 {
                let datagrams = logged.counts.lost_datagrams;
                let message = format!("{peer}: the link lost {lost} packets in {datagrams} datagrams");
                let remedy = if logged.socket_dropped_datagrams > 0 {
                    "the socket buffer was full: give longhaul a CPU of its own, and run it as root for a larger buffer"
                } else {
                    "check the path between the two hosts for loss"
                };
                warn(caveats::LINK_LOST, message, remedy);
            }
            if let Some(error) = &logged.disk_error {
                warn(caveats::DISK, format!("{peer}: {error}"), "free space on the disk, or use --keep");
            }
            if logged.refused_datagrams > 0 {
                let message = format!("{peer}: {} datagrams did not belong to the capture", logged.refused_datagrams);
                warn(caveats::FOREIGN_DATAGRAMS, message, "block other senders at this port with a firewall");
            }
            if logged.ledger.unaccounted_packets() != 0 {
                let message = format!("{peer}: {} packets are not accounted for", logged.ledger.unaccounted_packets());
                warn(caveats::UNACCOUNTED, message, "report this as a bug of longhaul");
            }
        }
        caveats
    }
}

fn line(peer: SocketAddr, logged: &Logged) -> String {
    let end = match &logged.end {
        LoggedEnd::Finished => "done",
        LoggedEnd::Vanished(_) => "the capture vanished",
        LoggedEnd::Stopped => "stopped here",
        LoggedEnd::Full => "full",
    };
    let ledger = &logged.ledger;
    let lost = match ledger.dropped() {
        0 => String::new(),
        dropped => format!(", {dropped} dropped ({} by the link)", logged.counts.lost_snippets),
    };
    format!(
        "{peer}: {end} after {:.1} s: {} packets seen, {} written{lost}; {} in {}",
        logged.duration.as_secs_f64(),
        ledger.seen_packets,
        ledger.written_packets,
        Bytes(logged.written_bytes).rounded(),
        logged.folder.display(),
    )
}

#[cfg(test)]
mod tests {
    use longhaul_captures::ledger::{Gap, Ledger, Place};
    use longhaul_captures::spool::{Mark, Meta};
    use longhaul_units::Nanos;

    use super::*;

    fn ended(gaps: usize, marks: usize) -> Logged {
        let gap = Gap { place: Place::KernelRing, interface: None, from_ns: 1, to_ns: 2, packets: 1 };
        Logged {
            meta: Meta::default(),
            end: LoggedEnd::Finished,
            duration: Nanos::ZERO,
            ledger: Ledger { gaps: vec![gap; gaps], ..Ledger::default() },
            counts: Default::default(),
            refused_datagrams: 0,
            socket_dropped_datagrams: 0,
            files: Vec::new(),
            folder: "capture".into(),
            files_removed: 0,
            written_bytes: 0,
            marks: vec![Mark { number: 1, at_ns: 1 }; marks],
            disk_error: None,
        }
    }

    /// A capture says by itself how many gaps and marks it has.
    #[test]
    fn moments_of_all_captures_together_have_a_bound() {
        let mut account = Account::default();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        for (gaps, marks) in [(MOMENTS_MOST / 2, 10), (MOMENTS_MOST / 2 - 20, 30), (5, 5)] {
            account.enter(peer, Ok(ended(gaps, marks)));
        }
        let kept: usize = account.captures.iter().map(|(_, one)| one.ledger.gaps.len() + one.marks.len()).sum();
        assert_eq!((kept, account.captures.len()), (MOMENTS_MOST, 3));
        let raised = account.caveats();
        let told = raised.iter().find(|caveat| caveat.is(caveats::MOMENTS_LEFT_OUT)).unwrap();
        assert!(told.message.starts_with("30 gaps and marks"), "{}", told.message);
    }
}
