//! Labs, what runs on their hosts, and what `--json` prints.

#[path = "../common/mod.rs"]
mod common;

mod as_iperf3;
mod cut_short;
mod deaf;
mod diagnose;
mod diagnose_tests;
mod documents;
mod ended_early;
mod hosts;
mod killed;
mod link_local;
mod long_path;
mod pages;
mod rtt;
mod schemas;
mod try_out;
mod udp_refusals;
mod watch;
mod which_lab;
