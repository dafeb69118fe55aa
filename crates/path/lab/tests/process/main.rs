//! What the process that holds a lab uses and leaves: descriptors, threads, memory, CPU time. Each test holds `common::alone`.

#[path = "../common/mod.rs"]
mod common;

mod cycles;
mod idle;
mod strangers;
