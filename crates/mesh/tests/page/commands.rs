//! The page of the commands says what their `--help` says.

use std::process::Command;

use longhaul_testing::document::is_current;

use crate::common::MESH;

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
