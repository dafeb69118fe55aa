//! The program `longhaul-mesh`, which `longhaul mesh` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    longhaul_mesh::run(std::env::args_os())
}
