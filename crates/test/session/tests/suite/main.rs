//! Client and server in virtual time.

mod common;
mod garbage;
mod pair;
mod tcp;
