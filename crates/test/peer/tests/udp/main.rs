//! UDP tests over real sockets, kernels and namespaces: each loss at its place, exactly by sequence number, and peers of
//! every kind.
//!
//! Which packets were lost is known independently: by a filter that drops a known list, or by captures of what left one host and reached
//! the other. Each test makes its own lab, and prints `skipped: why` where it may not.

mod capture;
mod counters;
mod demanding;
mod disturbances;
mod forged;
mod fragments;
mod hostile;
mod hosts;
mod mtu;
mod path;
mod receiver;
mod sender;
mod strangers;
