//! An endpoint filter that follows its host: the program of [`longhaul_bpf::filter`] and what the kernel says of addresses and links.
//!
//! The program sees MAC addresses, joined groups and whether something has taken its interface over where the kernel has them. Local
//! addresses it is told by [`Following`], within some milliseconds of a change; meanwhile, and for good where nobody follows, the
//! routing generation tells it that what it knows is old, and it passes what it would reject by address.

mod following;
mod obstacle;

pub use following::{FollowError, Following};
pub use obstacle::{Obstacle, obstacles};
