//! `longhaul capture --to` and `longhaul log`: heads over a network to logging hosts, between hosts of their own.

#[path = "../common/mod.rs"]
mod common;

mod arriving;
mod ending;
mod hostile;
mod hosts;
mod strangers;
mod way;
