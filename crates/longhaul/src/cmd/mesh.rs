//! `longhaul mesh`: starts `longhaul-mesh`, a program of its own, as its database costs minutes of build.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_kernel::installed::{beside, is_of_owner};

use crate::output::{Failure, Outcome};

const PROGRAM: &str = "longhaul-mesh";

/// Let sites test each other all the time, and say who loses packets
///
/// Starts the program longhaul-mesh. init: check a mesh file, make a token for each site. join: let this site join. run: run a site or the
/// coordinator. status: who loses packets. show: loss, round trips and TCP between sites.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Example:
  longhaul mesh init --folder /var/lib/longhaul-mesh mesh.toml            # at the coordinator
  longhaul mesh run --coordinator --folder /var/lib/longhaul-mesh
  longhaul mesh join --folder site --token geneva coordinator.example     # at each site
  longhaul mesh run --folder site --allow udp=10M
  longhaul mesh status --folder /var/lib/longhaul-mesh")]
pub(crate) struct Args {
    /// Run this subcommand with its options: init, join, run, status or show; each has --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS", required = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let Some(program) = found() else {
        let message = format!("there is no {PROGRAM} beside this program, in libexec/longhaul, or in PATH");
        return Err(Failure::new("no_mesh", message)
            .remedy("install the package that has it, or build it: cargo build --release -p longhaul-mesh"));
    };
    // It becomes that program: signals and exit code are its own.
    let error = Command::new(&program).args(args.arguments).exec();
    Err(Failure::new("no_mesh", format!("cannot start {}: {error}", program.display())))
}

/// The program in `libexec` of where this one is installed. Elsewhere, as in a folder below `/tmp`, anybody may have put one there.
fn libexec(own: &Path) -> Option<PathBuf> {
    let folder = own.parent()?;
    let is_installed = folder.file_name().is_some_and(|name| name == "bin" || name == "sbin");
    let program = folder.parent()?.join("libexec/longhaul").join(PROGRAM);
    (is_installed && program.ancestors().take(3).all(|path| is_of_owner(path, own))).then_some(program)
}

fn found() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    [beside(&own, PROGRAM), libexec(&own)].into_iter().flatten().chain(in_path).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder beside `/tmp/X`, in which an administrator unpacked it, can be anybody's.
    #[test]
    fn the_other_program_is_one_of_the_same_owner() {
        let folder = std::env::temp_dir().join(format!("longhaul-libexec-{}", std::process::id()));
        let of_programs = folder.join("libexec/longhaul");
        fs::create_dir_all(&of_programs).unwrap();
        let program = of_programs.join(PROGRAM);
        fs::write(&program, "").unwrap();
        let own = |name: &str| {
            fs::create_dir_all(folder.join(name)).unwrap();
            let own = folder.join(name).join("longhaul");
            fs::write(&own, "").unwrap();
            own
        };
        let (installed, unpacked) = (own("bin"), own("unpacked"));
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for path in [&folder.join("libexec"), &of_programs, &program] {
            set(path, 0o755);
        }
        assert_eq!(libexec(&installed), Some(program.clone()));
        assert_eq!(libexec(&unpacked), None);
        for path in [&folder.join("libexec"), &of_programs, &program] {
            set(path, 0o757);
            assert_eq!(libexec(&installed), None, "{}", path.display());
            set(path, 0o755);
        }
        // Beside a program in a folder of everybody's.
        let neighbour = unpacked.with_file_name(PROGRAM);
        fs::write(&neighbour, "").unwrap();
        set(&neighbour, 0o755);
        assert_eq!(beside(&unpacked, PROGRAM), Some(neighbour.clone()));
        set(&neighbour, 0o757);
        assert_eq!(beside(&unpacked, PROGRAM), None);
        set(&neighbour, 0o755);
        // To a program of root's, which does what its arguments say.
        fs::remove_file(&neighbour).unwrap();
        std::os::unix::fs::symlink("/bin/sh", &neighbour).unwrap();
        assert_eq!(beside(&unpacked, PROGRAM), Some(neighbour.clone()), "its own link");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&neighbour, Some(65_534), None).unwrap();
            assert_eq!(beside(&unpacked, PROGRAM), None);
        }
        fs::remove_file(&neighbour).unwrap();
        fs::write(&neighbour, "").unwrap();
        set(&neighbour, 0o755);
        if rustix::process::geteuid().is_root() {
            for program in [&program, &neighbour] {
                std::os::unix::fs::chown(program, Some(65_534), None).unwrap();
            }
            assert_eq!((libexec(&installed), beside(&unpacked, PROGRAM)), (None, None));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
