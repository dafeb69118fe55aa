//! The program `longhaul-mesh`, which `longhaul mesh` starts.

use std::process::ExitCode;

use rustix::fs::Mode;
use rustix::process::umask;

fn main() -> ExitCode {
    // Results are for who may read the page: files are the owner's alone, also in a folder that others can read.
    umask(Mode::RWXG | Mode::RWXO);
    longhaul_mesh::run(std::env::args_os())
}
