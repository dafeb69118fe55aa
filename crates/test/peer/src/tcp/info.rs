//! What the kernel knows of a connection.

use std::os::fd::AsFd;

use longhaul_kernel::tcp_info;
use longhaul_tcp::{INFO_BYTES, TcpInfo};

/// Reads `TCP_INFO`; `None` where the kernel does not tell.
pub(super) fn read_info(socket: impl AsFd) -> Option<TcpInfo> {
    let mut bytes = [0; INFO_BYTES];
    let written = tcp_info::read(socket, &mut bytes).ok()?;
    Some(TcpInfo::parse(&bytes[..written]))
}
