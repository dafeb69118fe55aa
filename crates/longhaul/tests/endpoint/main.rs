//! What a host does with packets: `longhaul cc`, `filter`, `tune` and `pace`.

#[path = "../common/mod.rs"]
mod common;

mod cc;
mod filter;
mod filter_moved;
mod guests;
mod pace;
mod remedies;
mod tune;
