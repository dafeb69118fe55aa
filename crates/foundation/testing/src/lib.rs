//! What the tests of all crates share. No program contains it: crates name it among their `dev-dependencies`.
//!
//! | module | what it has |
//! |---|---|
//! | [`guest`] | a machine with another kernel: one of Debian's, booted by QEMU |
//! | [`postgres`] | a PostgreSQL server of a test's own |
//! | [`skip`] | what a test says that cannot run here |

mod archive;
pub mod guest;
pub mod postgres;
pub mod skip;
