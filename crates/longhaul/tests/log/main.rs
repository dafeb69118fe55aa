//! `longhaul capture --to` and `longhaul log`: header snippets over a network to logging hosts, in a lab.

#[path = "../common/mod.rs"]
mod common;

mod arriving;
mod ending;
mod hostile;
mod hosts;
mod strangers;
mod way;
