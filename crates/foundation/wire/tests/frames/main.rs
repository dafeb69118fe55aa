//! Frames of any kind: cut into wire packets, in tunnels, and damaged.

#[path = "../common/mod.rs"]
mod common;

mod no_panic;
mod segment;
mod tunnel;
