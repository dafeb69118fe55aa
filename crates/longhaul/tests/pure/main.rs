//! What longhaul says of itself and of wrong input, its parsers, and the map of its crates.

#[path = "../common/mod.rs"]
mod common;

mod architecture;
mod bad_input;
mod copied;
mod evidence;
mod fuzz_corpus;
mod glossary;
mod help;
mod layout;
mod manners;
mod planted;
mod profile;
mod small_files;
mod strangers;
mod ticks;
