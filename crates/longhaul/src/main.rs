//! The program: the library's one function on its arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul::run(std::env::args_os().collect())
}
