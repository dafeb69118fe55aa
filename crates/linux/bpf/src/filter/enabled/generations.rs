//! [`Generations`]: reads the routing generations of a network namespace.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::link::run;
use super::{not_loaded, plain_step};
use crate::filter::{FilterError, RoutingGenerations};
use crate::skeleton::filter_generation::FilterGenerationSkelBuilder;
use crate::support::{KernelTypes, require_capabilities, with_log};

/// Reads the routing generations of the calling thread's network namespace.
pub struct Generations {
    v4: OwnedFd,
    v6: OwnedFd,
    /// The low half of the namespace's cookie, and the high one.
    namespace: [OwnedFd; 2],
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generations")
    }
}

impl Generations {
    /// Loads the programs that read them.
    ///
    /// # Errors
    /// [`FilterError::Bpf`], [`FilterError::NoKernelContext`].
    pub fn load() -> Result<Self, FilterError> {
        KernelTypes::read()?;
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| FilterGenerationSkelBuilder::default().open(&mut object)?.load());
        let skeleton = loaded.map_err(|error| not_loaded(error, log))?;
        let hold = |program: BorrowedFd<'_>| {
            program.try_clone_to_owned().map_err(|source| plain_step("hold the program", source))
        };
        let programs = &skeleton.progs;
        Ok(Self {
            v4: hold(programs.generation_v4.as_fd())?,
            v6: hold(programs.generation_v6.as_fd())?,
            namespace: [hold(programs.namespace_low.as_fd())?, hold(programs.namespace_high.as_fd())?],
        })
    }

    /// The generations of now. Takes some microseconds.
    ///
    /// # Errors
    /// [`FilterError::Bpf`].
    pub fn now(&self) -> Result<RoutingGenerations, FilterError> {
        let read = |program: &OwnedFd| run(program.as_fd()).map_err(|source| plain_step("run the program", source));
        let [low, high] = &self.namespace;
        let namespace = u64::from(read(high)?) << 32 | u64::from(read(low)?);
        Ok(RoutingGenerations { namespace, ipv4: read(&self.v4)?, ipv6: read(&self.v6)? })
    }
}
