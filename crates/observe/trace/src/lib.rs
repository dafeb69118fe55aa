//! Captured packet heads: files of them, the flows in them, and two captures compared.
//!
//! Pure: bytes in, numbers out. Who captures is `longhaul-kernel`; who opens files is the binary. A capture is a stream
//! of [`Record`]s (bytes as captured) or of [`Packet`]s (fields already decoded, which is what a header log keeps).

mod bytes;

pub mod capture_file;
pub mod compare;
pub mod dissect;
pub mod flow;
pub mod header_log;
mod input;
pub mod ledger;
pub mod limits;
pub mod log_link;
pub mod packet;
pub mod pcap;
pub mod pcapng;
pub mod record;
#[cfg(test)]
mod samples;
pub mod spool;

pub use capture_file::CaptureReader;
pub use dissect::{dissect, dissect_into};
pub use flow::{FlowOptions, FlowSummary, Flows, Sink};
pub use packet::{Ip, Options, Packet, Tcp, Transport};
pub use record::{Direction, LinkType, Record};
