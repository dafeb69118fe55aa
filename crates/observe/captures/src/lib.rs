//! Captured packets as files and streams.
//!
//! Pure: it reads and writes streams and knows no interface. `longhaul-kernel` captures, `longhaul-flows` says what follows from the
//! packets. A capture is a stream of [`Record`]s (bytes as captured) or of [`Packet`]s (fields already decoded, which is what a
//! header log keeps).

mod bytes;

pub mod capture_file;
pub mod dissect;
pub mod header_log;
mod input;
pub mod ledger;
pub mod log_link;
pub mod packet;
pub mod parquet_file;
pub mod parquet_limits;
pub mod pcap;
pub mod pcapng;
pub mod reader;
pub mod record;
#[cfg(test)]
mod samples;
pub mod spool;
pub mod writer;

pub use capture_file::CaptureReader;
pub use dissect::{dissect, dissect_into};
pub use packet::{Ip, Options, Packet, Tcp, Transport};
pub use record::{InterfaceDirection, LinkType, Record};
