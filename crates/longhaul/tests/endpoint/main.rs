//! What a host does with packets: `longhaul cc` and `filter`.

#[path = "../common/mod.rs"]
mod common;

mod cc;
mod filter;
mod kernels;
