//! Two captures compared.
//!
//! [`Matching`]: the same packets at two points of a path. Packets are known again by their heads ([`identity`]), the clocks
//! are laid over each other ([`clocks`]), and what remains is what the path did: delay, loss, order. Both captures are read three times,
//! so that neither is held in memory: twice for the [`Plan`], then packet by packet.
//!
//! [`behaviour`]: captures of different runs, or two points of one: do they behave alike, by statistical test? It is TAPEE's
//! question of a real path and a pseudo one.

pub mod behaviour;
pub mod clocks;
pub mod identity;
mod plan;
mod points;
mod result;

pub use plan::{FirstLook, Plan, Sampler, segment_sizes};
pub use points::{Between, CompareError, Compared, Delay, Direction, LostRun, MatchOptions, Matching, Reached};
pub use result::{CompareResult, IntervalBin, PathEnds, Points, Shown};
