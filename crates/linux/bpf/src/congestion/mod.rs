//! Congestion controls as BPF struct_ops: the kernel calls them as it calls its own, and any program of any user can select
//! them by name, in every network namespace.
//!
//! [`Control::load`] loads one and holds it: it ends with the value, or with the process. [`Control::keep`] pins it below
//! `/sys/fs/bpf/longhaul/cc`, until [`unload`] or the next boot. Connections that use one when it is unloaded
//! keep it until they close.
//!
//! Each is one C source in `controls/`, compiled for BPF, and natively for tests. `longhaul-congestion` describes them.

mod error;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::{Control, require_support};
#[cfg(bpf_programs)]
pub use enabled::{Control, require_support};
pub use error::CongestionError;
pub use kept::{KEPT, kept, unload};

mod kept;
pub mod selection;
