//! What longhaul leaves on its host: what other users can do to it there, what is left when it is killed, when a disk is full and when an
//! interface goes away.

#[path = "../common/mod.rs"]
mod common;

mod goes_away;
mod killed;
mod quota;
mod soak;
mod state;
mod strangers;
mod world;
mod written;
