//! [`Drops`] of a build without BPF programs: there are none, and asking for one says why.

use std::convert::Infallible;
use std::time::Duration;

use super::{DropEvent, DropOptions, Flow, Lost, ReasonNames, Unrecorded};
use crate::BpfError;
use crate::support::NOT_BUILT;

/// Watches the drops of some flows. This build cannot.
#[derive(Debug)]
pub struct Drops {
    never: Infallible,
}

impl Drops {
    /// # Errors
    /// [`BpfError::NotBuilt`].
    pub fn attach(_flows: &[Flow], _options: &DropOptions) -> Result<Self, BpfError> {
        Err(NOT_BUILT)
    }

    /// Cannot be called.
    pub fn reason_names(&self) -> &ReasonNames {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self, _timeout: Duration) -> std::io::Result<bool> {
        match self.never {}
    }

    /// Cannot be called.
    pub fn drain(&mut self, _each: impl FnMut(DropEvent<'_>)) -> usize {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn unrecorded(&self) -> std::io::Result<Vec<Unrecorded>> {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn lost(&self) -> std::io::Result<Lost> {
        match self.never {}
    }
}
