//! What a word of a command line can be, as far as longhaul alone knows it.

use std::fs;

use longhaul_congestion::Algorithm;
use longhaul_experiment::names as experiments;
use longhaul_lab::control::{Client, list as labs};
use longhaul_path::preset;
use longhaul_path::spec::{Direction, Key};

use crate::cmd::docs;

/// What can follow `words`, which come after the program's name. Nothing where any file, host or number may.
pub(super) fn after(top: &clap::Command, words: &[&str]) -> Vec<String> {
    let (mut command, mut path, mut positionals) = (top, Vec::new(), 0);
    let mut value_of: Option<&clap::Arg> = None;
    for word in words {
        if *word == "--" {
            // A program of somebody else.
            return Vec::new();
        }
        if value_of.take().is_some() {
            continue;
        }
        if let Some(option) = option(command, word) {
            value_of = Some(option).filter(|option| option.get_action().takes_values());
        } else if word.starts_with('-') {
            // With its value, or not known.
        } else if let Some(below) = command.find_subcommand(word) {
            (command, positionals) = (below, 0);
            path.push(below.get_name());
        } else {
            positionals += 1;
        }
    }
    // What follows `--` is no word of longhaul's.
    let own = || command.get_positionals().filter(|argument| !argument.is_last_set());
    let positional = || own().nth(positionals).or_else(|| own().last().filter(|last| takes_several(last)));
    value_of.or_else(positional).map_or_else(Vec::new, |argument| values(&path, argument))
}

/// The option that `word` is, without a value.
fn option<'a>(command: &'a clap::Command, word: &str) -> Option<&'a clap::Arg> {
    let long = word.strip_prefix("--");
    let short =
        word.strip_prefix('-').filter(|short| short.chars().count() == 1).and_then(|short| short.chars().next());
    command.get_opts().find(|option| {
        let is_short = short.is_some() && option.get_short() == short;
        is_short || long.is_some() && option.get_long() == long
    })
}

fn takes_several(argument: &clap::Arg) -> bool {
    matches!(argument.get_action(), clap::ArgAction::Append)
}

fn values(path: &[&str], argument: &clap::Arg) -> Vec<String> {
    let named = argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match (path, argument.get_id().as_str(), named) {
        (["capture"], "interface" | "interval", _) => interfaces().chain(["any".to_owned()]).collect(),
        (_, _, "INTERFACE" | "IF") => interfaces().collect(),
        (["lab", "up"] | ["paths", ..] | ["emulate"] | ["verify"], "path", _) => {
            preset::list().iter().map(|preset| preset.name.to_owned()).collect()
        }
        (["lab", ..], "name", _) => labs().unwrap_or_default(),
        (["lab", "exec" | "shell"], "host", _) => hosts(),
        (["lab", ..], "changes" | "set", _) => {
            let of = |direction: Direction| Key::ALL.map(|key| format!("{direction}.{}=", key.name()));
            Direction::BOTH.into_iter().flat_map(of).collect()
        }
        (["lab", "run"], "experiment", _) => experiments().map(str::to_owned).collect(),
        (["cc", "use"], "name", _) | (["tcp"], "congestion", _) => controls(),
        (["cc", "load" | "unload"], "names", _) => loadable().chain(["all".to_owned()]).collect(),
        (["cc", ..], "name", _) => loadable().collect(),
        (["docs"], ..) => docs::pages().into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}

/// Those of this network namespace.
fn interfaces() -> impl Iterator<Item = String> {
    let names = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// The hosts of all labs that are up.
fn hosts() -> Vec<String> {
    let mut names = Vec::new();
    for lab in labs().unwrap_or_default() {
        let info = Client::new(&lab).and_then(|client| client.info_now());
        for host in info.map(|info| info.hosts).unwrap_or_default() {
            if !names.contains(&host.plan.name) {
                names.push(host.plan.name);
            }
        }
    }
    names
}

/// What the kernel has, and those that longhaul can load.
fn controls() -> Vec<String> {
    let there = longhaul_kernel::sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let mut names: Vec<String> = there.split_whitespace().map(str::to_owned).collect();
    for name in loadable() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn loadable() -> impl Iterator<Item = String> {
    Algorithm::ALL.into_iter().map(|algorithm| algorithm.name().to_owned())
}
