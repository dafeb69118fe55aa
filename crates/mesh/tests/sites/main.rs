//! Sites in a lab, with real traffic: two or three, and ten in `killed.rs`.

mod common;
mod diagnosed;
mod full;
mod join;
mod killed;
mod kinds;
mod loss_lists;
mod nat;

/// Two sites on one side, 4 ms from the third.
const PATH: &str = "\
[[client]]
name = 'ithaca'
[[client]]
name = 'geneva'
[[server]]
name = 'chicago'
[[both]]
rate = '1Gbit'
delay = '2ms'
";
