//! Captures as commands open them: which packets count, progress on a terminal, and what to do about errors.

pub(crate) mod holes;
pub(crate) mod largest;
pub(crate) mod moment;
pub(crate) mod progress;
pub(crate) mod selected;
pub(crate) mod source;

use std::collections::BTreeSet;

use longhaul_captures::reader::{CaptureAccount, OpenError, Reason};
use longhaul_captures::writer::WriteError;
use longhaul_flows::Totals;
use longhaul_result::Caveat;

use crate::caveats;
use crate::output::Failure;

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let remedy = match error.reason {
            Reason::NotACapture(_) => {
                "give a spool, a header log, or a pcap or pcapng file (also compressed by gzip or zstd)"
            }
            Reason::HeaderLogFromPipe => "save it to a file",
            Reason::NoCaptureInFolder => "give a folder that `longhaul capture` wrote, or the files",
            _ => "",
        };
        Self::new("not_read", error).remedy(remedy)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let (code, remedy) = match error {
            WriteError::UnknownForm(_) => {
                return Self::usage(error).remedy(
                    "end the name with .parquet (a header log), .pcap or .pcapng, the latter two also with .gz or .zst",
                );
            }
            WriteError::Io(..) | WriteError::HeaderLog(..) => {
                ("not_written", "give a file in a folder with free space")
            }
            WriteError::NoSnippets => {
                ("no_snippets", "convert the spool itself, or make the header log with --keep-snippets")
            }
            WriteError::LinkTypes => ("link_types", "write a .pcapng"),
            WriteError::Time(_) => ("time", "convert to a header log, or to .pcapng if the time is after 1970"),
            WriteError::LateInterface => ("late_interface", "convert to a header log"),
        };
        Self::new(code, error).remedy(remedy)
    }
}

/// The caveat about parts of a capture that were not among the inputs.
pub(crate) fn missing_parts(account: &CaptureAccount) -> Option<Caveat> {
    let message = match account.missing_parts {
        0 => return None,
        1 => String::from(
            "a capture went to several logging hosts, and one part of it is not read: its packets are missing",
        ),
        parts => format!(
            "a capture went to several logging hosts, and {parts} parts of it are not read: their packets are missing"
        ),
    };
    Some(Caveat::new(caveats::PARTS_MISSING, message, "give the folders of all its logging hosts"))
}

/// The caveat about packets with an earlier time than the one before.
pub(crate) fn time_steps_back(totals: &Totals) -> Option<Caveat> {
    let message = match totals.time_steps_back {
        0 => return None,
        steps => format!("{steps} packets have an earlier time than the one before"),
    };
    Some(Caveat::new(caveats::TIME_STEPS_BACK, message, "merge the captures of several queues by time"))
}

/// The caveat about interfaces whose packets longhaul cannot look into.
pub(crate) fn unsupported_links(account: &CaptureAccount) -> Option<Caveat> {
    let interfaces = account.meta.interfaces.iter();
    let named: BTreeSet<u16> = interfaces.filter_map(|interface| interface.link.unsupported()).collect();
    let named: Vec<String> = named.iter().map(u16::to_string).collect();
    let message = format!("packets of link type {} are counted and not looked into", named.join(", "));
    let remedy = "capture at an Ethernet interface, or with `tcpdump -i any`";
    (!named.is_empty()).then(|| Caveat::new(caveats::UNKNOWN_LINK_TYPE, message, remedy))
}
