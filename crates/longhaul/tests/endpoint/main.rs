//! What a host does with packets: `longhaul cc`, `filter` and `mix`.

#[path = "../common/mod.rs"]
mod common;

mod cc;
mod filter;
mod mix;
