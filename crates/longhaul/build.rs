//! Says which commit a release is built from: `LONGHAUL_COMMIT` where a packager sets it, else what git says, else nothing.
//!
//! Development builds do not ask, as each commit would compile the binary and its tests anew.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LONGHAUL_COMMIT");
    let said = env::var("LONGHAUL_COMMIT").ok();
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = said.or_else(|| if release { of_git() } else { Some("development build".into()) });
    println!("cargo::rustc-env=LONGHAUL_COMMIT={}", commit.as_deref().unwrap_or("commit unknown"));
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
