//! What the tests of all crates share. No program contains it: crates name it among their `dev-dependencies`.
//!
//! | module | what it has |
//! |---|---|
//! | [`document`] | pages of the documents that are written from what a program prints |
//! | [`guest`] | a machine with another kernel: one of Debian's, booted by QEMU |
//! | [`postgres`] | a PostgreSQL server of a test's own |
//! | [`program`] | a child process that ends with the test, a copy of a program |
//! | [`skip`] | what a test says that cannot run here |
//! | [`waiting`] | waiting for an event |

mod archive;
pub mod document;
pub mod guest;
pub mod postgres;
pub mod program;
pub mod skip;
pub mod waiting;
