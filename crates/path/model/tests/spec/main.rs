//! Path files, and changes to a path that is in use.

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod path_files;
