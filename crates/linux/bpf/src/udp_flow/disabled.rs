//! [`UdpFlows`] of a build without BPF programs: there is none, and asking for one says why.

use std::convert::Infallible;
use std::io;

use super::{UdpDropSum, UdpFlow, UdpUse};
use crate::BpfError;
use crate::drops::ReasonNames;
use crate::support::NOT_BUILT;

/// Counts the datagrams of UDP sockets. This build cannot.
#[derive(Debug)]
pub struct UdpFlows {
    never: Infallible,
}

impl UdpFlows {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach(_namespace_inode: u32) -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn add_port(&self, _port: u16) -> io::Result<()> {
        match self.never {}
    }

    /// Cannot be called.
    pub fn tells_reads(&self) -> bool {
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
    pub fn flows(&self) -> io::Result<Vec<UdpFlow>> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn drops(&self) -> io::Result<Vec<UdpDropSum>> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn sockets(&self) -> io::Result<Vec<UdpUse>> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn keep_only(&self, _socket: impl Fn(u64) -> bool, _port: impl Fn(u16) -> bool) -> io::Result<()> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn uncounted(&self) -> io::Result<u64> {
        match self.never {}
    }
}
