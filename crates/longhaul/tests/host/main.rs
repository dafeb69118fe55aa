//! What longhaul asks of its host and leaves there: what other users can do to it, what is left when it is killed, when a disk is full and when an
//! interface goes away.

#[path = "../common/mod.rs"]
mod common;

mod goes_away;
mod killed;
mod open_files;
mod quota;
mod soak;
mod state;
mod strangers;
mod world;
mod written;
