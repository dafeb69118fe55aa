//! What a test does that cannot run on this machine: it says so, and is listed at the end of `make test`.
//!
//! Two cases differ. [`skipped!`](crate::skipped): the machine lacks a feature, mostly the kernel. [`no_judge!`](crate::no_judge): what
//! `make deps` or root would give is not there; continuous integration sets `LONGHAUL_REQUIRE_JUDGES`, and then the test fails.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread;

/// The file to which tests that could not run add a line. `make test` sets it.
const LIST: &str = "LONGHAUL_SKIPPED";
/// Where it is set and not `0`, a test without its judge fails.
const REQUIRE: &str = "LONGHAUL_REQUIRE_JUDGES";

/// Says that this test, or a part of it, cannot run for want of a feature of this machine; arguments as of `println!`.
#[macro_export]
macro_rules! skipped {
    ($($why:tt)*) => { $crate::skip::list(&::std::format!($($why)*)) };
}

/// Says that this test cannot run for want of what `make deps` or root would give; arguments as of `println!`.
#[macro_export]
macro_rules! no_judge {
    ($($why:tt)*) => { $crate::skip::without_judge(&::std::format!($($why)*)) };
}

/// What [`skipped!`](crate::skipped) does.
///
/// # Panics
/// Where the list cannot be written.
pub fn list(why: &str) {
    println!("skipped: {why}");
    let Some(list) = env::var_os(LIST) else { return };
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo's hash says nothing.
    let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
    let line = format!("{program} {}: {}\n", thread::current().name().unwrap_or("?"), why.trim().replace('\n', " "));
    // In one piece, as other programs add to it, too.
    let mut file =
        OpenOptions::new().create(true).append(true).open(&list).unwrap_or_else(|error| panic!("{list:?}: {error}"));
    file.write_all(line.as_bytes()).unwrap();
}

/// What [`no_judge!`](crate::no_judge) does.
///
/// # Panics
/// Where judges are required, or the list cannot be written.
pub fn without_judge(why: &str) {
    assert!(!required(env::var(REQUIRE).ok().as_deref()), "{REQUIRE} is set, and this test lacks what it takes: {why}");
    list(why);
}

fn required(value: Option<&str>) -> bool {
    value.is_some_and(|value| !["", "0"].contains(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn judges_are_required_where_it_is_said() {
        let cases = [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true), (Some("yes"), true)];
        for (value, wanted) in cases {
            assert_eq!(required(value), wanted, "{value:?}");
        }
    }

    /// A test of this program that lacks everything, by itself in a process.
    fn lacking(name: &str, list: &std::path::Path, require: &str) -> bool {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--test-threads=2", name]).env(LIST, list).env(REQUIRE, require);
        command.output().unwrap().status.success()
    }

    #[test]
    #[ignore = "another test runs it"]
    fn lacks_a_feature() {
        crate::skipped!("no {}\nhere", "feature");
    }

    #[test]
    #[ignore = "another test runs it"]
    fn lacks_a_judge() {
        crate::no_judge!("no tshark");
    }

    #[test]
    fn what_could_not_run_is_listed() {
        let list = env::temp_dir().join(format!("longhaul-skipped-{}", std::process::id()));
        let ran = [("lacks_a_feature", "1"), ("lacks_a_judge", "0"), ("lacks_a_judge", "1")]
            .map(|(name, require)| lacking(&format!("skip::tests::{name}"), &list, require));
        let listed = fs::read_to_string(&list).unwrap();
        fs::remove_file(&list).unwrap();
        assert_eq!(ran, [true, true, false], "a judge that is required and missing fails");
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), 2, "{listed}");
        assert_eq!(lines[0], "longhaul_testing skip::tests::lacks_a_feature: no feature here");
        assert_eq!(lines[1], "longhaul_testing skip::tests::lacks_a_judge: no tshark");
    }
}
