//! How often the kernel passed a tracepoint, on each CPU: a software counter of perf, which no BPF program stands in the way of.
//!
//! Source: perf_event_open(2), tracefs (Documentation/trace/events.rst §2).

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::schedule::online_cpus;

/// Why a tracepoint cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum TracepointError {
    /// Its number is not to be had.
    #[error("cannot read the number of the tracepoint {name} in tracefs: {source}; run as root")]
    Number {
        /// Group and name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot count the tracepoint {name} on CPU {cpu} (perf_event_open): {source}; it takes CAP_PERFMON")]
    Open {
        /// Group and name.
        name: String,
        /// The CPU.
        cpu: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not take the filter.
    #[error("cannot count the tracepoint {name} where {filter}: {source}")]
    Filter {
        /// Group and name.
        name: String,
        /// What was asked for.
        filter: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The CPUs are not known.
    #[error("cannot tell which CPUs are online: {0}")]
    Cpus(String),
}

/// Counts a tracepoint of the whole machine, whatever process or namespace passes it, until it is dropped.
///
/// Each pass costs some 100 ns meanwhile. A CPU that goes online later is not counted.
#[derive(Debug)]
pub struct TracepointCounter {
    counters: Vec<(usize, File)>,
}

/// The first form of `struct perf_event_attr`, `PERF_ATTR_SIZE_VER0`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

impl TracepointCounter {
    /// Counts `group:name` on every CPU that is online, from now on, where its fields are as `filter` says
    /// (Documentation/trace/events.rst §5); an empty one counts all.
    ///
    /// # Errors
    /// [`TracepointError`].
    pub fn open(group: &str, name: &str, filter: &str) -> Result<Self, TracepointError> {
        let full = || format!("{group}:{name}");
        let number = number(group, name).map_err(|source| TracepointError::Number { name: full(), source })?;
        let cpus = online_cpus().map_err(|error| TracepointError::Cpus(error.to_string()))?;
        let filter = CString::new(filter).map_err(|error| TracepointError::Filter {
            name: full(),
            filter: filter.into(),
            source: error.into(),
        })?;
        let counter = |cpu: usize| match open(number, cpu) {
            Ok(file) if !filter.is_empty() => match set_filter(&file, &filter) {
                Ok(()) => Ok((cpu, file)),
                Err(source) => {
                    let filter = filter.to_string_lossy().into();
                    Err(TracepointError::Filter { name: full(), filter, source })
                }
            },
            Ok(file) => Ok((cpu, file)),
            Err(source) => Err(TracepointError::Open { name: full(), cpu, source }),
        };
        Ok(Self { counters: cpus.into_iter().map(counter).collect::<Result<_, _>>()? })
    }

    /// The CPUs that are counted, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        self.counters.iter().map(|(cpu, _)| *cpu)
    }

    /// How often `cpu` passed it so far; `None` where it is not counted.
    ///
    /// # Errors
    /// As read(2) has them.
    pub fn passes(&self, cpu: usize) -> io::Result<Option<u64>> {
        let Some((_, file)) = self.counters.iter().find(|(counted, _)| *counted == cpu) else { return Ok(None) };
        let mut bytes = [0; 8];
        (&*file).read_exact(&mut bytes)?;
        Ok(Some(u64::from_ne_bytes(bytes)))
    }
}

fn open(number: u64, cpu: usize) -> io::Result<File> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind: PERF_TYPE_TRACEPOINT, size, config: number, ..Attributes::default() };
    let (any_process, no_group): (libc::pid_t, RawFd) = (-1, -1);
    // SAFETY: `attributes` has the size that it says and lives through the call; the rest are numbers.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            any_process,
            cpu as libc::c_int,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(descriptor as RawFd) })
}

fn set_filter(counter: &File, filter: &CStr) -> io::Result<()> {
    /// `PERF_EVENT_IOC_SET_FILTER`: `_IOW('$', 6, char *)`.
    const SET_FILTER: libc::c_ulong = 0x4008_2406;
    // SAFETY: the kernel copies the string, which ends and lives through the call.
    let done = unsafe { libc::ioctl(counter.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of a tracepoint, which tracefs alone tells. Where that is not mounted, as in a mount namespace with a `/sys` of its
/// own, it is so for a moment, where nobody sees it.
fn number(group: &str, name: &str) -> io::Result<u64> {
    let file = format!("events/{group}/{name}/id");
    let mounted =
        ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(|root| fs::read_to_string(format!("{root}/{file}")));
    let text = match mounted.into_iter().find_map(Result::ok) {
        Some(text) => text,
        None => {
            let file_system = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&file_system)?;
            let root = fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
            let mut text = String::new();
            File::from(openat(&root, &file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
                .take(32)
                .read_to_string(&mut text)?;
            text
        }
    };
    text.trim().parse().map_err(io::Error::other)
}
