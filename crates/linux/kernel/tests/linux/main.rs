//! What this crate says of Linux, asked of Linux: namespaces, cables between them and frames on the cables.
//!
//! Each test makes its own namespaces and says `skipped: why` where it may not.

#![allow(unsafe_code)]

mod cable;
mod capture;
mod forwarding;
mod full_port;
mod links;
mod mounts;
mod namespaces;
mod packets;
mod ring;
mod steering;
mod user_namespaces;
