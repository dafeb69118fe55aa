//! The text and the caveats of `longhaul log`: a line as each capture ends, all of them at the end.

use crate::caveats;
use std::net::SocketAddr;

use longhaul_capture::{LogResult, Logged, LoggedEnd};
use longhaul_captures::spool::Meta;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_session::SessionError;
use longhaul_units::Bytes;

/// Captures that the account keeps; further ones are only counted.
const CAPTURES_MOST: usize = 10_000;

/// Gaps and marks that the account keeps of all captures together. The captures' own files have them, too.
const MOMENTS_MOST: usize = 200_000;

/// Bytes of interfaces and names of files that the account keeps of all captures together: twice what 10,000 captures of an interface and ten
/// files have.
const LISTED_BYTES_MOST: usize = 16 << 20;

/// All captures so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    captures: Vec<(SocketAddr, Logged)>,
    /// Gaps and marks of them.
    moments: usize,
    moments_left_out: usize,
    /// Bytes of their interfaces and names of files.
    listed_bytes: usize,
    entries_left_out: usize,
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
                    self.bound_moments(&mut logged);
                    self.bound_lists(&mut logged);
                    self.captures.push((peer, logged));
                } else {
                    self.more_captures += 1;
                }
                line
            }
        }
    }

    /// A client says how many gaps it has: they may not fill this host's memory.
    fn bound_moments(&mut self, logged: &mut Logged) {
        let all = logged.ledger.gaps.len() + logged.marks.len();
        logged.ledger.gaps.truncate(MOMENTS_MOST - self.moments);
        logged.marks.truncate(MOMENTS_MOST - self.moments - logged.ledger.gaps.len());
        logged.ledger.gaps.shrink_to_fit();
        logged.marks.shrink_to_fit();
        let kept = logged.ledger.gaps.len() + logged.marks.len();
        self.moments += kept;
        self.moments_left_out += all - kept;
    }

    /// The same for what it says about itself: the account keeps only what the result shows. The number of files is limited by what it sends.
    fn bound_lists(&mut self, logged: &mut Logged) {
        let Meta { host, share, mut interfaces, .. } = std::mem::take(&mut logged.meta);
        let all = interfaces.len() + logged.files.len();
        let mut room = LISTED_BYTES_MOST - self.listed_bytes;
        keep_within(&mut room, &mut interfaces, |interface| interface.name.len() + interface.clock.len());
        keep_within(&mut room, &mut logged.files, |file| file.as_os_str().len());
        self.listed_bytes = LISTED_BYTES_MOST - room;
        self.entries_left_out += all - interfaces.len() - logged.files.len();
        logged.meta = Meta { host, share, interfaces, ..Meta::default() };
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
        if self.entries_left_out > 0 {
            let message = format!("{} interfaces and files are not in this result", self.entries_left_out);
            warn(caveats::ENTRIES_LEFT_OUT, message, "the folders of the captures have them");
        }
        for (peer, logged) in &self.captures {
            if let LoggedEnd::Vanished(why) = &logged.end {
                let message = format!(
                    "{peer}: the capture stopped without an end message: {why}; its last packets were not counted"
                );
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

/// Cuts `list` to the first entries that `room` has bytes for, each with its `texts`.
fn keep_within<T>(room: &mut usize, list: &mut Vec<T>, texts: impl Fn(&T) -> usize) {
    let fits = |entry: &T| {
        let rest = room.checked_sub(size_of::<T>() + texts(entry));
        *room = rest.unwrap_or(*room);
        rest.is_some()
    };
    let kept = list.iter().map(fits).take_while(|fits| *fits).count();
    list.truncate(kept);
    list.shrink_to_fit();
}

fn line(peer: SocketAddr, logged: &Logged) -> String {
    let end = match &logged.end {
        LoggedEnd::Finished => "done",
        LoggedEnd::Vanished(_) => "the capture stopped without an end message",
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
    use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
    use longhaul_captures::spool::{Interface, Mark};
    use longhaul_units::Nanos;

    use super::*;

    fn ended(gaps: usize, marks: usize) -> Logged {
        let gap = Gap { place: DroppedAt::KernelRing, interface: None, from_ns: 1, to_ns: 2, packets: 1 };
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

    /// A capture itself names its interfaces. The account keeps only the part that the result shows.
    #[test]
    fn interfaces_and_files_of_all_captures_together_have_a_bound() {
        let mut account = Account::default();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let interface = Interface { name: "n".repeat(128), clock: "c".repeat(64), ..Interface::default() };
        let each = size_of::<Interface>() + 128 + 64;
        let captures = LISTED_BYTES_MOST / each / 64 + 3;
        for _ in 0..captures {
            let mut logged = ended(0, 0);
            logged.meta.host = "site".into();
            logged.meta.filter = "f".repeat(4096);
            logged.meta.interfaces = vec![interface.clone(); 64];
            account.enter(peer, Ok(logged));
        }
        let kept: usize = account.captures.iter().map(|(_, one)| one.meta.interfaces.len()).sum();
        assert_eq!((kept, account.captures.len()), (LISTED_BYTES_MOST / each, captures));
        assert!(account.captures.iter().all(|(_, one)| one.meta.host == "site" && one.meta.filter.is_empty()));
        let raised = account.caveats();
        let told = raised.iter().find(|caveat| caveat.is(caveats::ENTRIES_LEFT_OUT)).unwrap();
        let left_out = captures * 64 - kept;
        assert!(told.message.starts_with(&format!("{left_out} interfaces and files")), "{}", told.message);
    }

    /// Captures as they are keep all of it.
    #[test]
    fn a_capture_keeps_its_interfaces_and_files() {
        let mut account = Account::default();
        let mut logged = ended(0, 0);
        logged.meta.interfaces = vec![Interface { name: "eth0".into(), ..Interface::default() }; 2];
        logged.files = (1..=10).map(|number| format!("capture/{number:08}.spool").into()).collect();
        account.enter("192.0.2.1:7".parse().unwrap(), Ok(logged));
        let kept = &account.captures[0].1;
        assert_eq!((kept.meta.interfaces.len(), kept.files.len(), account.caveats().len()), (2, 10, 0));
    }
}
