//! What the results of all commands share: a caveat, a place of loss, the envelope.
//!
//! The figures of a result are beside the logic that makes them, in the crate of its test or observation.

mod caveat;
pub mod caveats;
mod envelope;
mod location;

pub use caveat::{Caveat, CaveatCode};
pub use envelope::{Envelope, Hosts};
pub use location::{Granularity, Location, LocationMethod, TcpLocation};
