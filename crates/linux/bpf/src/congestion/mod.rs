//! Congestion controls as BPF struct_ops: the kernel calls them as it calls its own, and any program of any user can select
//! them by name, in every network namespace.
//!
//! [`Control::load`] loads one and holds it: with the value, or with its process, it goes. [`Control::keep`] pins it below
//! `/sys/fs/bpf/longhaul/cc`, where it stays until [`unload`] or the next boot. Connections that use one when it is unloaded
//! keep it until they close.
//!
//! Each is one C source in this folder, compiled for BPF and natively ([`native`]). What they are is said by
//! `longhaul-congestion`.

mod error;
pub mod native;

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
