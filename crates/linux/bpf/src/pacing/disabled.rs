//! [`Pacing`] of a build without BPF programs: there is none, and asking for one says why.

use std::convert::Infallible;
use std::fs::File;

use crate::BpfError;
use crate::support::NOT_BUILT;

/// Paces connections. This build cannot.
#[derive(Debug)]
pub struct Pacing {
    never: Infallible,
}

impl Pacing {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach(_group: &File, _bytes_per_s: u32) -> Result<Self, BpfError> {
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
