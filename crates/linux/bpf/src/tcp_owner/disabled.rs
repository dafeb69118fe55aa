//! [`TcpOwners`] of a build without BPF programs: there is none, and asking for one says why.

use std::convert::Infallible;

use super::OwnerEvent;
use crate::BpfError;
use crate::support::NOT_BUILT;

/// Tells who opens and closes TCP connections. This build cannot.
#[derive(Debug)]
pub struct TcpOwners {
    never: Infallible,
}

impl TcpOwners {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach(_namespace_inode: u32) -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    pub fn drain(&mut self, _each: impl FnMut(OwnerEvent)) {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn lost_events(&self) -> std::io::Result<u64> {
        match self.never {}
    }
}
