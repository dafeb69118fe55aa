//! The path model in real time, between packet sockets.
//!
//! [`longhaul_path::network::Network`] decides the fate and the time of every packet. This crate has the frames
//! themselves, the sockets that receive and send them, and the clock.

mod caveats;
mod engine;
mod payload;
mod port;
mod running;
mod sizing;
mod status;
mod switch;
mod waker;

pub use engine::{Attachment, Command, Engine, EngineError, EngineOptions};
pub use port::PortError;
pub use running::{Running, RunningError, Schedule};
pub use sizing::payload_bytes;
pub use status::{DEFAULT_LATENESS_BOUND, HopStatus, MemoryStatus, OwnFault, PortStatus, Status};
pub use waker::{WakeSource, Waker, waker};
