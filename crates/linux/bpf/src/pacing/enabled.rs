//! [`Pacing`]: loads the program, attaches it to a cgroup, counts connections.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::MOST_BYTES_PER_S;
use crate::BpfError;
use crate::skeleton::pacing::PacingSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "pacing";

/// Paces connections, until it is dropped; those that exist then keep their rate. A process that is killed leaves nothing in the kernel.
pub struct Pacing {
    // First, so that the program is freed before its maps.
    _link: Link,
    counters: MapHandle,
}

impl fmt::Debug for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pacing")
    }
}

impl Pacing {
    /// From now on each new connection of the processes in the cgroup whose folder is `group`, and in those below it, sends `bytes_per_s` at most
    /// (1 to [`MOST_BYTES_PER_S`]), in every network namespace.
    ///
    /// # Errors
    /// [`BpfError::NoBtf`], [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`].
    pub fn attach(group: &File, bytes_per_s: u32) -> Result<Self, BpfError> {
        KernelTypes::read()?;
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = PacingSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.rate = bytes_per_s.clamp(1, MOST_BYTES_PER_S);
            }
            open.load()
        });
        let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
        let counters = MapHandle::try_from(&skeleton.maps.bss).map_err(|error| step("hold a map", &error))?;
        let link = skeleton.progs.pace.attach_cgroup(group.as_raw_fd());
        let link = link.map_err(|error| step("attach to the cgroup", &error))?;
        Ok(Self { _link: link, counters })
    }

    /// Connections that are paced, and those that the kernel refused it.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn connections(&self) -> io::Result<(u64, u64)> {
        let value = self.counters.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        let value = value.unwrap_or_default();
        let (counts, _) = value.as_chunks::<8>();
        let count = |at: usize| counts.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok((count(0), count(1)))
    }
}

fn step(step: &'static str, error: &libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(error) }
}
