//! What longhaul says of itself: help, completions, man pages.

use std::fs;
use std::path::Path;

use crate::common::{commands, help, longhaul, printed, root};

/// What texts of options and arguments begin with: verbs, and three adverbs before one.
const VERBS: &str = "\
    Accept Add Allow Also Append Attach Authenticate Begin Capture Change Choose Compare Compress Confirm Connect \
    Contact Continue Count Cover Create Defer Delete Detach Diagnose Disable Do Draw Drop Emulate Encrypt End \
    Expect Follow Give Join Judge Keep Leave Let Limit Listen Load Locate Lose Make Measure Move Never Open POST \
    Print Probe Put Raise Read Receive Record Refuse Reject Repeat Replace Report Restore Run Save Seed Send \
    Serve Set Show Sleep Stop Take Test Trust Tune Turn Unload Use Wake Watch Write";

#[test]
fn help_fits_a_screen() {
    let help = help(&[]);
    // A window of today; 24 lines have no room for a line each.
    assert!(help.lines().count() <= 33, "{} lines", help.lines().count());
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    insta::assert_snapshot!(help);
}

#[test]
fn a_udp_result_fits_a_terminal() {
    let file = root().join("crates/longhaul/tests/udp-result.json");
    let text = printed(&["show", file.to_str().unwrap()]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn every_command_shows_an_example() {
    let without: Vec<String> = (commands().into_iter().skip(1))
        .filter(|command| !help(command).contains(&format!("Example:\n  longhaul {}", command[0])))
        .map(|command| command.join(" "))
        .collect();
    assert!(without.is_empty(), "without an example in their help: {}", without.join(", "));
}

/// The first word of each text of an option or argument in `help`, with the option. In a short help the text is behind the option, in a long
/// one on the next line.
fn first_words(help: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = help.lines().skip_while(|line| !["Arguments:", "Options:"].contains(line));
    while let Some(line) = lines.next().filter(|line| !line.starts_with("Example")) {
        let option = line.trim_start();
        if ![2, 6].contains(&(line.len() - option.len())) || !option.starts_with(['-', '<', '[']) {
            continue;
        }
        let (name, text) = match option.split_once("  ") {
            Some((name, text)) => (name, text.trim_start()),
            None => (option, lines.next().unwrap_or_default().trim_start()),
        };
        found.push((text.split(' ').next().unwrap_or_default().to_owned(), name.to_owned()));
    }
    found
}

#[test]
fn texts_of_options_begin_with_a_verb() {
    let mesh = fs::read_to_string(root().join("docs/reference/mesh-commands.md")).unwrap();
    let mesh =
        mesh.split("\n## ").skip(1).map(|command| (command.lines().next().unwrap().to_owned(), command.to_owned()));
    let helps = commands().into_iter().map(|command| (format!("longhaul {}", command.join(" ")), help(&command)));
    let all: Vec<[String; 3]> = (helps.chain(mesh))
        .flat_map(|(command, help)| {
            first_words(&help).into_iter().map(move |(word, name)| [command.clone(), name, word])
        })
        .collect();
    assert!(all.len() > 400, "{} options", all.len());
    let wrong = all.iter().filter(|[.., word]| !VERBS.split(' ').any(|verb| verb == word)).map(|one| one.join(": "));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "begin with a verb, or add the verb to VERBS:\n{}", wrong.join("\n"));
}

#[test]
fn the_version_has_its_commit_and_features() {
    let version = concat!("longhaul ", env!("CARGO_PKG_VERSION"), " (");
    let (short, long) = (printed(&["-V"]), printed(&["--version"]));
    assert!(short.lines().count() == 1 && short.starts_with(version), "{short}");
    let commit = short.trim_end().strip_prefix(version).and_then(|rest| rest.strip_suffix(')')).unwrap_or_default();
    let is_hash = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    // What a build says that did not ask git, or did not find it.
    let without = if cfg!(debug_assertions) { "development build" } else { "commit unknown" };
    assert!(is_hash || commit == without, "{short}");
    assert!(long.starts_with(short.trim_end()), "{long}");
    assert!(long.contains("\nBPF programs: ") && long.contains("\ndebug assertions: "), "{long}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completion", shell]);
        for word in ["emulate", "segmentation", "status"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("man-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    printed(&["man", folder.to_str().unwrap()]);
    let mut written: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    written.sort_unstable();
    let mut expected: Vec<String> = (commands().into_iter())
        .map(|command| ["longhaul".to_owned()].into_iter().chain(command).collect::<Vec<_>>().join("-") + ".1")
        .collect();
    expected.sort_unstable();
    for page in &written {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(written, expected);
}

/// One line that names what is wrong, and exit code 2.
#[test]
fn wrong_usage_is_said_in_a_line() {
    for (arguments, named) in [
        (&["nonsense"][..], "nonsense"),
        (&[], "longhaul: which command? use one of diagnose, udp, tcp,"),
        (&["lab"], "longhaul lab: which command? use one of up, try, exec, shell, set, run, status, list, down ("),
        (&["capture", "-i", "1s", "-o", "x"], "name an INTERFACE, or any for all of them"),
        (&["capture", "lo", "lo", "-o", "x"], "name several interfaces in one word, with commas"),
        (&["mix", "-i", "eth0", "--seed", "1", "x"], "-i is a time; name the interface without -i: eth0"),
        (&["key"], "longhaul key: which command? use one of new ("),
        (&["udp", "::1", "--key", "/no/such/key"], "longhaul key new FILE"),
        (&["serve", "--key", "/no/such/key"], "longhaul key new FILE"),
        (&["paths", "show", "nlr-smal"], "nlr-small"),
        (&["lab", "up", "lan", "--mtu", "9"], "--mtu"),
        (&["lab", "up", "lan", "--batch-time", "1 fortnight"], "--batch-time"),
        (&["lab", "up", "lan", "--set", "delay=-1ms"], "delay"),
        (&["emulate", "--left", "lh0", "--right", "lh0", "--path", "lan"], "lh0"),
    ] {
        let output = longhaul(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
    }
}
