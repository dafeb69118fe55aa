//! The path model: two directions of hops in virtual time.
//!
//! Pure: no clock, no sockets, no threads. The emulator runs it in real time, tests and simulations in virtual time.

pub mod law;
pub mod network;
pub mod one_line;
pub mod preset;
pub mod spec;
