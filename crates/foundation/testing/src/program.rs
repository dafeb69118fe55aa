//! A program that a test has started.

use std::process::Child;

/// A child process that ends with this value, whatever comes of the test.
#[derive(Debug)]
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
