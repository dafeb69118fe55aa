//! Labs, what runs on their hosts, and what `--json` prints.

#[path = "../common/mod.rs"]
mod common;

mod cut_short;
mod deaf;
mod diagnose;
mod documents;
mod hosts;
mod killed;
mod schemas;
mod try_out;
mod udp_refusals;
mod watch;
mod which_lab;
