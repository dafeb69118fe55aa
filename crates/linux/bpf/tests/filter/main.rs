//! The endpoint filter on Linux: real frames on a real cable, each class, branch and exception; random ones against a naive twin.
//!
//! Each test makes its own hosts and says `skipped: why` where it may not. With `--nocapture` it prints what it saw.

// Without clang at build time there is nothing to test here.
#![cfg(bpf_programs)]

mod branches;
mod cable;
mod cost;
mod frames;
mod lengths;
mod lifetime;
mod naive;
mod twin;
mod world;

/// What `build.rs` made of `tests/hooks`. Generated code is not ours to lint.
#[allow(unsafe_code, missing_docs, unreachable_pub, dead_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/hooks.skel.rs"));
}
