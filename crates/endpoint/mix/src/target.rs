//! The receiver of a mix.

use std::net::IpAddr;

use longhaul_wire::probe::Cookie;

/// The receiver of the numbered stream, and the source and cookie of its datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The receiver's MAC address, or that of the router before it.
    pub mac: [u8; 6],
    /// The receiver's address.
    pub address: IpAddr,
    /// The receiver's UDP port.
    pub port: u16,
    /// The source address of the datagrams; of the same family.
    pub source: IpAddr,
    /// The source port of the datagrams.
    pub source_port: u16,
    /// The cookie of the stream's probe headers (`wire::probe`).
    pub cookie: Cookie,
}
