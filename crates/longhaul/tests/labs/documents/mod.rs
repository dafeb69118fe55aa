//! The documents: what README.md and docs/ tell people to type works, and what they repeat from the binary is current.
//!
//! CONTRIBUTING.md, section "Documents", says how a page marks its blocks.

mod page;
mod running;
mod shell;

use std::fs;

use longhaul_kernel::capability;
use longhaul_testing::document::is_current;
use serde_json::Value;

use self::page::{Fate, Page};
use crate::common::{commands, help, longhaul, printed, root};

/// What follows `cargo test` to run these tests alone.
const TEST: &str = "-p longhaul --test labs documents";

#[test]
fn the_marked_commands_work() {
    if !capability::is_root_in_namespace() {
        return longhaul_testing::no_judge!("the commands of the documents need root");
    }
    let failed = running::run_marked(&Page::all());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn blocks_run_or_say_why_not() {
    let silent: Vec<String> = (Page::all().iter())
        .flat_map(|page| page.blocks.iter().map(|block| (&page.name, block)))
        .filter(|(_, block)| {
            block.is_shell() && block.fate == Fate::Parsed && !shell::longhaul_commands(&block.script()).is_empty()
        })
        .map(|(name, block)| format!("{name}:{}", block.line))
        .collect();
    assert!(silent.is_empty(), "neither `<!-- run -->` nor `<!-- not run: why -->` stands before {silent:?}");
}

#[test]
fn the_binary_accepts_every_command_in_a_block() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in Page::all() {
        for block in page.blocks.iter().filter(|block| block.is_shell()) {
            for words in shell::longhaul_commands(&block.script()) {
                checked += 1;
                // `--help` ends the reading of arguments: whatever stands before it has been parsed, and nothing is done.
                let arguments: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
                let output = longhaul(&arguments);
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr);
                    wrong.push(format!("{}:{}: longhaul {}\n{said}", page.name, block.line, words.join(" ")));
                }
            }
            if let Fate::NotRun(why) = &block.fate {
                println!("not run: {}:{}: {why}", page.name, block.line);
            }
        }
    }
    assert!(checked > 50, "{checked} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_and_flags_in_prose_exist() {
    let helps: Vec<(Vec<String>, String)> =
        commands().into_iter().map(|command| (command.clone(), help(&command))).collect();
    let has = |help: &str, flag: &str| {
        help.split(|c: char| c.is_whitespace() || c == ',' || c == '[').any(|word| word == flag)
    };
    let mut wrong = Vec::new();
    for page in Page::all().into_iter().filter(|page| !page.name.ends_with("commands.md")) {
        for (line, code) in &page.inline {
            let Some(rest) = code.strip_prefix("longhaul ") else { continue };
            let words: Vec<&str> = rest.split(" -- ").next().unwrap_or(rest).split_whitespace().collect();
            // `longhaul COMMAND --help` and the hidden commands that the help names stand for themselves.
            if matches!(words[0], "COMMAND" | "completion" | "man" | "docs" | "--version") {
                continue;
            }
            let command = helps.iter().rev().find(|(command, _)| {
                !command.is_empty() && command.len() <= words.len() && command.iter().zip(&words).all(|(a, b)| a == b)
            });
            match command {
                None => wrong.push(format!("{}:{line}: `{code}`: no such command", page.name)),
                Some((_, help)) => wrong.extend(
                    (words.iter().filter(|word| word.starts_with('-')))
                        .filter(|word| !has(help, word.split('=').next().unwrap_or(word)))
                        .map(|word| format!("{}:{line}: `{code}`: no flag {word}", page.name)),
                ),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_of_the_pages_outside_of_the_site_lead_somewhere() {
    let mut dead = Vec::new();
    for name in ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !target.contains("://") && !root().join(file).exists() {
                dead.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:?}");
}

/// A renderer drops the cells that a row has beyond those of the first one.
#[test]
fn rows_of_a_table_have_as_many_cells_as_its_first() {
    let beside = ["SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"].map(str::to_owned);
    let mut wrong = Vec::new();
    for name in Page::all().into_iter().map(|page| page.name).chain(beside) {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let (mut first, mut in_code) = (None, false);
        for (line, number) in text.lines().zip(1..) {
            in_code ^= line.starts_with("```");
            if in_code || !line.starts_with('|') {
                first = None;
                continue;
            }
            let cells = line.replace("\\|", "").matches('|').count() - 1;
            if *first.get_or_insert(cells) != cells {
                wrong.push(format!("{name}:{number}: {cells} cells"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn the_page_of_loss_locations_has_each() {
    let page = fs::read_to_string(root().join("docs/reference/loss-locations.md")).unwrap();
    for location in longhaul_result::Location::ALL {
        assert!(page.contains(&format!("| `{location}` |")), "{location}");
    }
}

#[test]
fn the_page_of_commands_is_current() {
    let mut text = "# Commands\n\nThis page is written from the binary's own `--help`.\n".to_owned();
    for command in commands() {
        let title = [&["longhaul".to_owned()][..], &command].concat().join(" ");
        text += &format!("\n##{} {title}\n\n```text\n{}\n```\n", "#".repeat(command.len() / 2), help(&command).trim());
    }
    is_current("docs/reference/commands.md", &text, TEST);
}

#[test]
fn the_page_of_presets_is_current() {
    let listed: Value = serde_json::from_str(&printed(&["paths", "--json"])).unwrap();
    let mut text = "# Presets\n\nPaths that have names: `longhaul lab up NAME`. `longhaul paths show NAME` prints one as a file to begin with;\n\
        [path files](path-files.md) explains the keys. This page is written from the binary.\n"
        .to_owned();
    for path in listed["result"]["paths"].as_array().unwrap() {
        let name = path["name"].as_str().unwrap();
        text += &format!("\n## {name}\n\n```toml\n{}\n```\n", printed(&["paths", "show", name]).trim());
    }
    is_current("docs/reference/presets.md", &text, TEST);
}
