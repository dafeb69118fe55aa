//! Compresses the pages of the manual for `longhaul docs`, and says which commit a release is built from: `LONGHAUL_COMMIT` where a
//! packager sets it, else what git says, else nothing.
//!
//! Development builds do not ask git, as each commit would compile the binary and its tests anew.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Where pages are. A page of a name that is in several folders is that of the first.
const FOLDERS: [&str; 2] = ["reference", "how-to"];
/// Pages that say nothing that `--help` does not say.
const LEFT_OUT: [&str; 3] = ["index", "commands", "mesh-commands"];

fn main() {
    manual().unwrap_or_else(|error| panic!("docs: {error}"));
    println!("cargo::rerun-if-changed=build.rs");
    fold_functions();
    println!("cargo::rerun-if-env-changed=LONGHAUL_COMMIT");
    let said = env::var("LONGHAUL_COMMIT").ok();
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = said.or_else(|| if release { of_git() } else { Some("development build".into()) });
    println!("cargo::rustc-env=LONGHAUL_COMMIT={}", commit.as_deref().unwrap_or("commit unknown"));
}

/// Has the linker keep one of functions with equal code, where a trial shows that it can.
fn fold_functions() {
    const OPTION: &str = "-Wl,--icf=all";
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if release && links_with(OPTION).unwrap_or(false) {
        println!("cargo::rustc-link-arg-bins={OPTION}");
    }
}

/// Whether an empty program can be linked so, as cargo links this one.
fn links_with(option: &str) -> Option<bool> {
    let out = PathBuf::from(env::var_os("OUT_DIR")?);
    let source = out.join("trial.rs");
    fs::write(&source, "fn main() {}").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.arg(source).arg("-o").arg(out.join("trial")).arg("--target").arg(env::var_os("TARGET")?);
    rustc.args(env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut set = std::ffi::OsString::from("linker=");
        set.push(linker);
        rustc.arg("-C").arg(set);
    }
    let output = rustc.arg("-C").arg(format!("link-arg={option}")).output().ok()?;
    Some(output.status.success())
}

/// The commit that is checked out, where this is a repository and git is there.
fn of_git() -> Option<String> {
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    // A branch's commit is in a file of its own, or in one for all. Files that are not there would be asked for in each build.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().map(str::to_owned).chain(branch) {
        if let Some(file) = git(&["rev-parse", "--git-path", &name]).filter(|file| Path::new(file).exists()) {
            let file = fs::canonicalize(file).ok()?;
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    Some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}

/// Writes `$OUT_DIR/manual.gz`: name and text of each page, each followed by a zero.
fn manual() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut written: Vec<String> = Vec::new();
    for folder in FOLDERS {
        let folder = Path::new("../../docs").join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut pages = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
        pages.sort();
        for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
            let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !LEFT_OUT.contains(&name.as_str()) && !written.contains(&name) {
                write!(encoder, "{name}\0{}\0", fs::read_to_string(page)?)?;
                written.push(name);
            }
        }
    }
    fs::write(out.join("manual.gz"), encoder.finish()?)
}
