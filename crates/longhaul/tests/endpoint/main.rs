//! What a host does with packets: `longhaul cc`, `filter`, `tune` and `pace`.

#[path = "../common/mod.rs"]
mod common;

mod cc;
mod filter;
mod filter_moved;
mod kernels;
mod limits;
mod netem;
mod nic;
mod nic_stamps;
mod pace;
mod remedies;
mod tune;
