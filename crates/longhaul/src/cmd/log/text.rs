//! What `longhaul log` says of captures: a line as each ends, all of them at its own end.

use std::net::SocketAddr;

use longhaul_capture::{End, Logged};
use longhaul_result::Caveat;
use longhaul_session::control::SessionError;
use longhaul_units::Bytes;
use serde_json::{Value, json};

use crate::cmd::capture::text::by_place;

/// Captures that the account keeps; beyond it they are counted alone.
const CAPTURES_MOST: usize = 10_000;

/// All captures so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    captures: Vec<(SocketAddr, Logged)>,
    more_captures: u64,
    refused_connections: u64,
}

impl Account {
    /// Enters how a connection ended, and says so in a line.
    pub(crate) fn enter(&mut self, peer: SocketAddr, ended: Result<Logged, SessionError>) -> String {
        match ended {
            Err(error) => {
                self.refused_connections += 1;
                format!("{peer}: {} ({})", error.message, error.code)
            }
            Ok(logged) => {
                let line = line(peer, &logged);
                if self.captures.len() < CAPTURES_MOST {
                    self.captures.push((peer, logged));
                } else {
                    self.more_captures += 1;
                }
                line
            }
        }
    }

    pub(crate) fn result(&self) -> Value {
        json!({
            "captures": self.captures.iter().map(capture).collect::<Vec<_>>(),
            "more_captures": self.more_captures,
            "refused_connections": self.refused_connections,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (peer, logged) in &self.captures {
            text += &format!("{}\n", line(*peer, logged));
        }
        if self.captures.is_empty() {
            text += "no capture came\n";
        }
        text
    }

    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let mut warn = |code: &str, message: String, remedy: &str| {
            caveats.push(Caveat { code: code.into(), message, remedy: remedy.into() });
        };
        for (peer, logged) in &self.captures {
            if let End::Vanished(why) = &logged.end {
                let message = format!("{peer}: the capture vanished: {why}; what it sent last is not accounted for");
                warn("capture_vanished", message, "look whether its host and the path to it are up");
            }
            let lost = logged.counts.lost_heads;
            if lost > 0 {
                let datagrams = logged.counts.lost_datagrams;
                let message = format!("{peer}: the link lost {lost} packets in {datagrams} datagrams");
                let remedy = if logged.socket_dropped_datagrams > 0 {
                    "give this program a CPU of its own: its socket was full; as root it asks for a larger buffer"
                } else {
                    "look for the loss on the path between the two hosts"
                };
                warn("link_lost", message, remedy);
            }
            if let Some(error) = &logged.disk_error {
                warn("disk", format!("{peer}: {error}"), "make room, or use --keep");
            }
            if logged.refused_datagrams > 0 {
                let message = format!("{peer}: {} datagrams were not the capture's", logged.refused_datagrams);
                warn("foreign_datagrams", message, "keep others away from the port by a firewall");
            }
            if logged.ledger.unaccounted_packets() != 0 {
                let message = format!("{peer}: {} packets are not accounted for", logged.ledger.unaccounted_packets());
                warn("unaccounted", message, "report this as an error of longhaul");
            }
        }
        caveats
    }
}

fn line(peer: SocketAddr, logged: &Logged) -> String {
    let end = match &logged.end {
        End::Finished => "done",
        End::Vanished(_) => "the capture vanished",
        End::Stopped => "stopped here",
        End::Full => "full",
    };
    let ledger = &logged.ledger;
    let lost = match ledger.dropped() {
        0 => String::new(),
        dropped => format!(", {dropped} dropped ({} by the link)", logged.counts.lost_heads),
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

fn capture((peer, logged): &(SocketAddr, Logged)) -> Value {
    let (end, why) = match &logged.end {
        End::Finished => ("finished", None),
        End::Vanished(why) => ("vanished", Some(why)),
        End::Stopped => ("stopped", None),
        End::Full => ("full", None),
    };
    json!({
        "peer": peer.to_string(),
        "host": logged.meta.host,
        "share": logged.meta.share,
        "interfaces": logged.meta.interfaces,
        "folder": logged.folder,
        "files": logged.files,
        "files_removed": logged.files_removed,
        "end": end,
        "why": why,
        "duration_ns": logged.duration.0,
        "seen_packets": logged.ledger.seen_packets,
        "written_packets": logged.ledger.written_packets,
        "dropped_packets": logged.ledger.dropped(),
        "dropped_by_place": by_place(&logged.ledger),
        "unaccounted_packets": logged.ledger.unaccounted_packets(),
        "gaps": logged.ledger.gaps,
        "written_bytes": logged.written_bytes,
        "received_datagrams": logged.counts.datagrams,
        "lost_datagrams": logged.counts.lost_datagrams,
        "stale_datagrams": logged.counts.stale_datagrams,
        "wrong_datagrams": logged.counts.wrong_datagrams,
        "refused_datagrams": logged.refused_datagrams,
        "socket_dropped_datagrams": logged.socket_dropped_datagrams,
        "marks": logged.marks,
    })
}
