//! [`Selection`] gives a congestion control to TCP connections of programs that select none themselves: to those of a cgroup, or to those with
//! certain remote addresses.

mod destination;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

pub use destination::{BadDestination, Destination};
#[cfg(not(bpf_programs))]
pub use disabled::Selection;
#[cfg(bpf_programs)]
pub use enabled::Selection;

/// The most destinations of one selection: `MOST_DESTINATIONS` in `main.bpf.c`.
pub const MOST_DESTINATIONS: usize = 16;
