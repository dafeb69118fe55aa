//! The page of the commands says what their `--help` says, and what a coordinator asks of its host.

use std::fs;
use std::process::{Command, Stdio};

use longhaul_testing::document::is_current;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;

use crate::common::{Folder, MESH, hub, names};

/// What `longhaul mesh COMMAND --help` prints in a terminal of 100 columns.
fn help(command: Option<&str>) -> String {
    let output = Command::new(MESH).args(command).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_of_mesh_commands_is_current() {
    let all = help(None);
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a command does goes on in lines that begin further to the right.
    let listed = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 3, "{names:?}");
    let mut text = "# Commands of longhaul mesh\n\nThis page is written from `longhaul mesh --help`. \
        [How to](../how-to/mesh.md) shows a mesh from its file to its first alarm.\n"
        .to_owned();
    for name in [None].into_iter().chain(names.into_iter().map(Some)) {
        let title: Vec<&str> = ["longhaul mesh"].into_iter().chain(name).collect();
        text += &format!("\n## {}\n\n```text\n{}\n```\n", title.join(" "), help(name).trim());
    }
    is_current("docs/reference/mesh-commands.md", &text, "-p longhaul-mesh --test page the_page_of_mesh_commands");
}

/// Each connection of a site or a reader takes one or two, and most systems begin with 1,024.
#[test]
fn a_coordinator_has_as_many_files_open_as_the_hard_limit_allows() {
    let folder = Folder::new("open-files");
    let hub = hub(&folder, &names(&["ithaca", "geneva"]), &[]);
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=128:512", MESH, "run", "--coordinator", "--bind", "127.0.0.1:0", "--folder"]).arg(hub);
    let Ok(child) = limited.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return longhaul_testing::no_judge!("no prlimit");
    };
    let program = Program(child);
    let limits = || fs::read_to_string(format!("/proc/{}/limits", program.0.id())).unwrap();
    let both = |line: &str| line.split_whitespace().filter(|word| *word == "512").count() == 2;
    until("the limit", || limits().lines().any(|line| line.starts_with("Max open files") && both(line)));
}
