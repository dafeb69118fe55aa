//! [`Pacing`] has the kernel send each TCP connection of a cgroup at a rate at most, whatever the program sets or does not set.

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::Pacing;
#[cfg(bpf_programs)]
pub use enabled::Pacing;

/// The highest rate, in bytes a second: the kernel takes 32 bits from a BPF program, and all of them set mean no limit.
pub const MOST_BYTES_PER_S: u32 = u32::MAX - 1;
