//! The endpoint filter as a host needs it: what follows the host's addresses, what forbids dropping, and the status.
//!
//! The XDP program itself is [`longhaul_bpf::filter`]. It reads MAC addresses, joined groups, and whether something has taken the
//! interface over, out of the kernel's own memory. [`Following`] gives it the local addresses, within some milliseconds of a change.
//! Until then, and where nobody follows, the kernel's routing generation shows the program that its addresses are old. It then
//! passes what it would reject by address.

mod caveats;
mod following;
mod obstacle;
mod status;

pub use following::{FollowError, Following};
pub use obstacle::{Obstacle, obstacles};
pub use status::{
    FilterStatus, Judges, ProtocolCount, ReasonCount, SizeCount, StatusError, Tables, too_many_addresses,
};
