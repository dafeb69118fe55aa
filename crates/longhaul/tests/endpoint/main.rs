//! What a host does with packets: `longhaul cc`, `filter`, `host` and `mix`.

#[path = "../common/mod.rs"]
mod common;

mod cc;
mod filter;
mod host;
mod mix;
