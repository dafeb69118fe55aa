//! Tests between two hosts: sockets, threads and evidence around a session.
//!
//! [`longhaul_session`] decides what happens; here are the clock, the sockets and the threads that do it. A test has a driver,
//! which owns the session and waits for events, a thread that reads the control connection, and one thread a stream that sends
//! or receives. [`client::run`] makes one, [`server::Server`] answers.

mod binding;
pub mod client;
pub mod control;
mod counters;
mod cpu_use;
mod data;
mod driver;
mod drops;
pub mod listening;
mod receiving;
mod sending;
pub mod server;
mod tcp;
mod udp_data;

pub use longhaul_session as session;
