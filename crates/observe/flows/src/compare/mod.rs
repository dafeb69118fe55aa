//! Two captures compared.
//!
//! [`Matching`]: the same packets at two points of a path. Packets are known again by their snippets ([`identity`]), the clocks
//! are laid over each other ([`clocks`]), and what remains is what the path did: delay, loss, order. Both captures are read three times,
//! so that neither is held in memory: twice for the [`Plan`], then packet by packet.
//!
//! [`behaviour`]: captures of different runs, or two points of one: do they behave alike, within margins? It is TAPEE's
//! question of a real path and a pseudo one. What is tested are [`samples`], by [`equivalence`].

pub mod behaviour;
mod bounds;
pub mod clocks;
pub mod equivalence;
pub mod identity;
mod plan;
mod points;
mod result;
pub mod samples;
mod sides;

pub use bounds::Bounds;
pub use identity::PathDirection;
pub use plan::{CompareError, FirstLook, MatchOptions, Plan, Sampler, recognition};
pub use points::{Between, Compared, Delay, LostRun, Matching, NotObservable, Reached};
pub use result::{CompareResult, GapsOf, IntervalBin, PathEnds, Points, Shown};
