//! A program that a test starts.

use std::path::Path;
use std::process::{Child, Command};

/// A child process that ends with this value, whatever comes of the test.
#[derive(Debug)]
pub struct Program(pub Child);

impl Program {
    /// Kills it, and waits until it has ended.
    pub fn kill(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Copies the program `from` to `to`, where every user may run it.
///
/// `install` writes the copy, not this process: children that other threads of a test fork meanwhile would hold the copy open for writing
/// until they execute their own programs, and until then nobody can run it (`ETXTBSY`, "Text file busy").
///
/// # Panics
/// Where it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut install = Command::new("install");
    let status = install.args(["-m", "755", "--"]).args([from.as_ref(), to.as_ref()]).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{install:?}: {status:?}");
}
