//! Real traffic over a lab's path. Each test holds `common::alone`: no two run at a time.

#[path = "../common/mod.rs"]
mod common;

mod disturbances;
mod live_changes;
mod losses;
mod memory;
mod mtu;
mod overload;
mod protocols;
mod rate;
mod segmentation;
mod shared_queue;
mod side_by_side;
mod switching;
mod transfer;
