//! Traffic whose rate, timing or completeness is judged, and the set-up of this machine, which other tests change.
//! Each test holds a turn (`common/turns.rs`): `alone`, or `quiet` or `side_by_side` with others that disturb it as little as it disturbs
//! them.

#[path = "../common/mod.rs"]
mod common;

mod analyze_limits;
mod analyze_truth;
mod compare;
mod compare_gaps;
mod compare_runs;
mod congestion;
mod copies;
mod experiments;
mod faults;
mod host;
mod judges;
mod mix;
mod profile;
mod rtt;
mod sweep;
mod tcp;
mod udp;
