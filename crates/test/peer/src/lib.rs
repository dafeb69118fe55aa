//! Tests between two hosts: sockets, threads and evidence around a session.
//!
//! [`longhaul_session`] decides what happens; here are the clock, the sockets and the threads that do it. A test at one end has a driver,
//! which owns the session and waits for events, a thread that reads the control connection, and the threads of the test's kind, which
//! send and receive. [`client::run`] runs a test, [`server::Server`] answers tests. [`control`] and [`listening`] serve other protocols
//! over the same kind of connection, too.
//!
//! A module uses those below it:
//!
//! ```text
//!            client   server
//!               │       │  ╲
//!             driver ───┘   listening
//!               │              │
//!             kinds            │
//!            ╱     ╲           │
//!       rtt, udp   tcp         │
//!            ╲     ╱           │
//! data, counters, cpu_use, waking
//!               │              │
//!             event ────── control
//! ```

pub mod caveats;
pub mod client;
pub mod control;
mod counters;
mod cpu_use;
mod cpus;
mod data;
mod driver;
mod event;
mod interface;
mod kinds;
pub mod listening;
pub mod rtt;
pub mod server;
mod tcp;
mod udp;
mod waking;
