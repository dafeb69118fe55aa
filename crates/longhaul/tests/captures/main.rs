//! `longhaul capture`, `convert`, `analyze` and `compare`: what captures keep, and how much memory they take to read.

#[path = "../common/mod.rs"]
mod common;

mod analyze;
mod analyze_memory;
mod capture;
mod capture_filter;
mod compare_memory;
mod forms;
mod many_files;
mod super_packets;
