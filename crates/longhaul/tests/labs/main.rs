//! Labs, what runs on their hosts, and what `--json` prints.

#[path = "../common/mod.rs"]
mod common;

mod deaf;
mod diagnose;
mod documents;
mod hosts;
mod killed;
mod schemas;
mod udp_refusals;
mod watch;
