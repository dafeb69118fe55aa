//! Which process opens and closes each TCP connection, also of those that live too short to be seen in `/proc`.
//!
//! [`TcpOwners`] attaches a program to the tracepoint `sock:inet_sock_set_state`. It tells of one network namespace. A
//! connection that was accepted tells its process when it is closed, as it is established before anybody has it.

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
