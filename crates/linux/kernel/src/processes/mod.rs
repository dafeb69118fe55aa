//! Processes: where they live, when they run, how they end.

pub mod capability;
pub mod group_limits;
pub mod installed;
pub mod mounts;
pub mod namespace;
pub mod open_files;
pub mod process;
pub mod procfs;
pub mod schedule;
pub mod signals;
pub mod user_namespace;
