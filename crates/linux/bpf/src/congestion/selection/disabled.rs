//! [`Selection`] of a build without BPF programs: there is none, and asking for one says why.

use std::convert::Infallible;
use std::fs::File;

use super::Destination;
use crate::BpfError;
use crate::support::NOT_BUILT;

/// Gives a congestion control to connections. This build cannot.
#[derive(Debug)]
pub struct Selection {
    never: Infallible,
}

impl Selection {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach(_group: &File, _control: &str, _destinations: &[Destination]) -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn connections(&self) -> std::io::Result<(u64, u64)> {
        match self.never {}
    }
}
