//! [`Control`] of a build without BPF programs: there are none, and asking for one says why.

use std::convert::Infallible;

use longhaul_congestion::Settings;

use super::CongestionError;
use crate::support::NOT_BUILT;

/// A congestion control that is loaded. This build has none.
#[derive(Debug)]
pub struct Control {
    never: Infallible,
}

/// # Errors
/// [`crate::BpfError::NotBuilt`].
pub fn require_support() -> Result<(), CongestionError> {
    Err(NOT_BUILT.into())
}

impl Control {
    /// # Errors
    /// [`crate::BpfError::NotBuilt`].
    pub fn load(_settings: &Settings) -> Result<Self, CongestionError> {
        Err(NOT_BUILT.into())
    }

    /// Cannot be called.
    pub fn name(&self) -> &str {
        match self.never {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn keep(self) -> Result<(), CongestionError> {
        match self.never {}
    }
}
