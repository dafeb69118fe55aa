//! Guests with another kernel, with netem, or with NICs of their own (`longhaul_testing::guest`).
//!
//! They live in virtual time, so that it does not matter how busy this machine is: `make test` runs them beside the tests of other programs.

mod kernels;
mod limits;
mod netem;
mod nic;
mod nic_stamps;
mod tune;
