//! UDP sockets, and counters before and after, of Linux in namespaces.
//!
//! Each test makes its own namespaces and says `skipped: why` where it may not.

#[allow(dead_code, unsafe_code)]
#[path = "../linux/cable.rs"]
mod cable;
mod counters;
mod pair;
mod udp;
mod udp_loss;
mod udp_speed;
