//! What measures: UDP sockets, counters before and after, a host's set-up; each asked of Linux, in namespaces.
//!
//! Each test makes its own namespaces and says `skipped: why` where it may not.

#[allow(dead_code, unsafe_code)]
#[path = "../linux/cable.rs"]
mod cable;
mod counters;
mod host;
mod pair;
mod udp;
mod udp_loss;
mod udp_speed;
