//! What the tests of all crates share. No program contains it: crates name it among their `dev-dependencies`.
//!
//! | module | what it has |
//! |---|---|
//! | [`guest`] | a machine with another kernel: one of Debian's, booted by QEMU |

mod archive;
pub mod guest;
