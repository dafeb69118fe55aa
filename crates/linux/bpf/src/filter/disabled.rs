//! [`Filter`] of a build without BPF programs: every call fails and says why.

use std::convert::Infallible;

use longhaul_units::Nanos;

use super::{
    FilterCounters, FilterError, FilterOptions, FilterSample, FilterSettings, Judgement, LocalNetwork, Mode,
    RoutingGenerations,
};
use crate::support::NOT_BUILT;

/// A filter at an interface. This build has none.
#[derive(Debug)]
pub struct Filter {
    never: Infallible,
}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "none but the first three can be called")]
impl Filter {
    pub fn forget_gone() {}

    /// # Errors
    /// [`crate::BpfError::NotBuilt`].
    pub fn attach(_ifindex: u32, _options: &FilterOptions) -> Result<Self, FilterError> {
        Err(NOT_BUILT.into())
    }

    /// # Errors
    /// [`crate::BpfError::NotBuilt`].
    pub fn open(_ifindex: u32) -> Result<Self, FilterError> {
        Err(NOT_BUILT.into())
    }

    pub fn program_id(&self) -> u32 {
        match self.never {}
    }

    pub fn mode(&self) -> Mode {
        match self.never {}
    }

    pub fn not_native(&self) -> Option<&str> {
        match self.never {}
    }

    pub fn is_attached(&self) -> bool {
        match self.never {}
    }

    pub fn try_frame(&self, _frame: &[u8], _repeat: u32) -> Result<(bool, u32), FilterError> {
        match self.never {}
    }

    pub fn settings(&self) -> Result<FilterSettings, FilterError> {
        match self.never {}
    }

    pub fn followed(&self) -> Result<(Judgement, RoutingGenerations), FilterError> {
        match self.never {}
    }

    pub fn confirm(&self, _now: Nanos) -> Result<bool, FilterError> {
        match self.never {}
    }

    pub fn sample(&self, _every: u64, _until: Nanos) -> Result<(), FilterError> {
        match self.never {}
    }

    pub fn follow(
        &self,
        _local: &[LocalNetwork],
        _judgement: Judgement,
        _generations: RoutingGenerations,
    ) -> Result<(), FilterError> {
        match self.never {}
    }

    pub fn counters(&self) -> Result<FilterCounters, FilterError> {
        match self.never {}
    }

    pub fn samples(&self) -> Result<Samples, FilterError> {
        match self.never {}
    }

    pub fn keep(&self) -> Result<(), FilterError> {
        match self.never {}
    }

    pub fn is_kept(&self) -> bool {
        match self.never {}
    }

    pub fn detach(self) -> Result<(), FilterError> {
        match self.never {}
    }
}

/// Header snippets of rejected frames. This build has none.
#[derive(Debug)]
pub struct Samples {
    never: Infallible,
}

impl Samples {
    /// Cannot be called.
    pub fn drain(&mut self, _each: impl FnMut(FilterSample)) {
        match self.never {}
    }
}

/// Tells routing generations. This build cannot.
#[derive(Debug)]
pub struct Generations {
    never: Infallible,
}

impl Generations {
    /// # Errors
    /// [`crate::BpfError::NotBuilt`].
    pub fn load() -> Result<Self, FilterError> {
        Err(NOT_BUILT.into())
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn now(&self) -> Result<RoutingGenerations, FilterError> {
        match self.never {}
    }
}
