//! UDP tests over real sockets, kernels and namespaces: each loss at its place, exactly by sequence number, and peers of
//! every kind.
//!
//! What was lost is known from elsewhere: a filter that drops a known list, or captures of what left the one host and reached
//! the other. Each test makes its own lab and says `skipped: why` where it may not.

mod capture;
mod counters;
mod disturbances;
mod hostile;
mod hosts;
mod path;
mod receiver;
mod sender;
