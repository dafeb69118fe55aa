//! What the two ends of a log link tell each other over the control connection.
//!
//! ```text
//! capture                                logging host
//!   │  Open                                 │
//!   │ ────────────────────────────────────► │  makes a folder
//!   │                               Accept  │
//!   │ ◄──────────────────────────────────── │
//!   │  probes, as datagrams ──────────────► │
//!   │                        Heard (bytes)  │  of each that is longer than those before
//!   │ ◄──────────────────────────────────── │
//!   │  datagrams with snippets ══════════════► │
//!   │  Part, Mark                           │  drops at the capturing host
//!   │ ────────────────────────────────────► │
//!   │                             Progress  │  twice a second
//!   │ ◄──────────────────────────────────── │
//!   │  Finished                             │
//!   │ ────────────────────────────────────► │
//!   │                               Closed  │  once the tail is there or lost, and the files are closed
//!   │ ◄──────────────────────────────────── │
//! ```

use longhaul_units::is_obeyed;
use serde::{Deserialize, Serialize};

use super::INTERFACES_MOST;
use crate::ledger::Ledger;
use crate::spool::{Mark, Meta, Share};

/// Bytes of a peer's texts that are kept, whatever their letters. The kernel's names have 15, its alternative names 127.
const NAME_BYTES_MOST: usize = 128;
/// The same for the name of a clock, for the program, and for the id that the parts of a capture share.
const WORD_BYTES_MOST: usize = 64;
const HOST_BYTES_MOST: usize = 256;
/// An expression may be long.
const FILTER_BYTES_MOST: usize = 4096;

/// A message of the log link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "link", rename_all = "snake_case")]
pub enum LinkMessage {
    /// Capture: what I have for you. Boxed, as it is far larger than the others.
    Open(Box<Open>),
    /// Logging host: send it there.
    Accept {
        /// Stands in each datagram.
        session: u32,
        /// The UDP port.
        port: u16,
        /// Base64: the answer to the offer, or the token where there was none.
        secret: String,
    },
    /// Logging host: a datagram came.
    Heard {
        /// How long the longest so far was.
        bytes: u32,
    },
    /// Capture: packets that it dropped itself. They count as seen.
    Part {
        /// Since the one before.
        ledger: Ledger,
    },
    /// Capture: somebody marked a moment.
    Mark {
        /// Which.
        mark: Mark,
    },
    /// Logging host: so far.
    Progress(LinkProgress),
    /// Capture: that was all.
    Finished {
        /// Datagrams sent.
        datagrams: u64,
        /// Snippets in them.
        snippets: u64,
        /// None of those is later; nanoseconds since 1970.
        latest_ns: i64,
    },
    /// Logging host: the files are closed.
    Closed {
        /// Its result.
        progress: LinkProgress,
        /// When packets were lost on the link, or dropped by the logging host's disk.
        ledger: Ledger,
    },
}

/// What a capture asks a logging host to take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Open {
    /// What the capture is.
    pub meta: Meta,
    /// Base64: the first message of the datagrams' handshake; `None` without a key.
    pub offer: Option<String>,
}

impl Open {
    /// The description as it may be kept: texts of bounded length without control characters, some 20 KiB together.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn checked_meta(self) -> Result<Meta, &'static str> {
        let mut meta = self.meta;
        if meta.interfaces.is_empty() || meta.interfaces.len() > INTERFACES_MOST {
            return Err("a capture is of 1 to 64 interfaces");
        }
        for interface in &mut meta.interfaces {
            tame(&mut interface.name, NAME_BYTES_MOST);
            tame(&mut interface.clock, WORD_BYTES_MOST);
        }
        tame(&mut meta.captured_by, WORD_BYTES_MOST);
        tame(&mut meta.host, HOST_BYTES_MOST);
        tame(&mut meta.filter, FILTER_BYTES_MOST);
        meta.file = 1;
        if let Some(Share { capture, .. }) = &mut meta.share {
            tame(capture, WORD_BYTES_MOST);
        }
        Ok(meta)
    }
}

/// Cuts `text` to `most` bytes, with a space for each letter that a terminal obeys.
fn tame(text: &mut String, most: usize) {
    let mut tame = String::with_capacity(text.len().min(most));
    for letter in text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }) {
        if tame.len() + letter.len_utf8() > most {
            break;
        }
        tame.push(letter);
    }
    *text = tame;
}

/// What a logging host has done for one capture so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkProgress {
    /// Datagrams that came.
    pub received_datagrams: u64,
    /// Datagrams that are lost.
    pub lost_datagrams: u64,
    /// Snippets in those.
    pub lost_packets: u64,
    /// Snippets that were written.
    pub written_packets: u64,
    /// Snippets that came and were not written.
    pub disk_dropped_packets: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// All snippets before this have come or are lost; nanoseconds since 1970.
    pub watermark_ns: i64,
}
