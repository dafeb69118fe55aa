//! A program that a test has started.

use std::process::Child;

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
