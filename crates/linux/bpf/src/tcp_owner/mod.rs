//! Which process opens and closes each TCP connection, even if it is too short to be seen in `/proc`.
//!
//! [`TcpOwners`] attaches a program to the tracepoint `sock:inet_sock_set_state`. It reports one network namespace. An
//! accepted connection shows its process only when it is closed: it is established before a process has it.

mod event;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::TcpOwners;
#[cfg(bpf_programs)]
pub use enabled::TcpOwners;
pub use event::{Owner, OwnerEvent};
