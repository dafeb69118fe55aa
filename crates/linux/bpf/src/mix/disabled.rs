//! [`LiveFrames`] of a build without BPF programs: there are none, and asking for them says why.

use std::convert::Infallible;
use std::io;

use super::{LiveOptions, LiveState};
use crate::BpfError;
use crate::support::NOT_BUILT;

/// Makes and sends frames. This build cannot.
#[derive(Debug)]
pub struct LiveFrames {
    never: Infallible,
}

impl LiveFrames {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn load(_options: &LiveOptions<'_>) -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _frames: u32) -> io::Result<()> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn state(&self) -> io::Result<LiveState> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn made(&self, _share: usize) -> io::Result<u64> {
        match self.never {}
    }
}
