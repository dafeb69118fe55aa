//! Captured packet heads: files of them, the flows in them, and two captures compared.
//!
//! Pure: bytes in, numbers out. Who captures is `longhaul-kernel`; who opens files is the binary. A capture is a stream
//! of [`Record`]s (bytes as captured) or of [`Packet`]s (fields already decoded, which is what a header log keeps).

pub mod packet;
pub mod record;

pub use packet::{Ip, Options, Packet, Tcp, Transport};
pub use record::{Direction, LinkType, Record};
