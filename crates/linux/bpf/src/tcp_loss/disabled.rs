//! [`TcpLoss`] of a build without BPF programs: there is none, and asking for one says why.

use std::convert::Infallible;
use std::net::SocketAddr;

use super::{TcpAgain, TcpDropSum};
use crate::BpfError;
use crate::drops::ReasonNames;
use crate::support::NOT_BUILT;

/// Watches the losses of some TCP connections. This build cannot.
#[derive(Debug)]
pub struct TcpLoss {
    never: Infallible,
}

impl TcpLoss {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach() -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn follow(&self, _connection: u32, _local: SocketAddr, _remote: SocketAddr) -> std::io::Result<()> {
        match self.never {}
    }

    /// Cannot be called.
    pub fn reason_names(&self) -> &ReasonNames {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn drops(&self) -> std::io::Result<Vec<TcpDropSum>> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn retransmitted(&self, _connection: u32) -> std::io::Result<TcpAgain> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn missed_drops(&self) -> std::io::Result<u64> {
        match self.never {}
    }
}
