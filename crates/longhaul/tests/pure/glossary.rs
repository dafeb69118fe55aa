//! The words of the glossary in CONTRIBUTING.md, in what users read: help, documents, schemas, messages, experiments.

use std::fs;
use std::path::{Path, PathBuf};

use crate::architecture::{crates, is_test, program, sources};
use crate::common::{commands, help, root};

/// Words that the glossary's column "Not" has and that mean nothing else here, and the word to use.
const NOT: [(&str, &str); 23] = [
    ("head", "packet header or header snippet"),
    ("heads", "packet headers or header snippets"),
    ("overtaken", "reordered"),
    ("overtook", "reordered"),
    ("came late", "reordered"),
    ("doubled", "duplicated"),
    ("came twice", "duplicated"),
    ("arrives twice", "duplicated"),
    ("sent again", "retransmitted"),
    ("sends it again", "retransmits it"),
    ("stayed", "lost or dropped"),
    ("vanish", "lost"),
    ("went away", "was removed"),
    ("there and back", "round trip"),
    ("way and back", "round trip"),
    ("way back", "the backward or the reverse direction"),
    ("both ways", "both directions"),
    ("each way", "each direction"),
    ("warning", "caveat"),
    ("hint", "remedy"),
    ("testbed", "lab"),
    ("throughput", "rate or goodput"),
    ("bandwidth", "rate"),
];

/// Where they may be: the field's own terms, the question that users ask, and papers in their own words.
const EXCEPT: [&str; 11] = [
    "bandwidth-delay product",
    "bandwidth × delay",
    "the throughput of a long fat network",
    "what limits throughput",
    "where is my throughput",
    "high bandwidth, long distance",
    "throughput at the receiver; latency by request and response",
    "better throughput under load",
    "nlr rings testbed",
    "with a testbed between geneva and chicago",
    "round-trip time for the testbed",
];

/// Files below `folder` whose names end in `extension`.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found
}

/// The words of `text` that the glossary excludes, each with some words before and after it and the word to use.
fn wrong_words(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let text = EXCEPT.iter().fold(text, |text, allowed| text.replace(allowed, "…"));
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (not, say) in NOT {
        for (at, _) in text.match_indices(not) {
            let (before, after) = (&text[..at], &text[at + not.len()..]);
            if before.ends_with(is_word) || after.starts_with(is_word) {
                continue;
            }
            let mut near: Vec<&str> = before.rsplit(' ').take(5).collect();
            near.reverse();
            let after = after.split(' ').take(5).collect::<Vec<_>>().join(" ");
            found.push(format!("\"{}{not}{after}\": say {say}", near.join(" ")));
        }
    }
    found
}

/// The texts between quotes in the program `source` that are more than a name, without what `{…}` stands for.
fn texts(source: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, found) = rest.split_at(at);
        if found.starts_with("//") {
            rest = found.find('\n').map_or("", |end| &found[end..]);
        } else if let Some(after) = ["'\"'", "'\\\"'"].iter().find_map(|quote| found.strip_prefix(*quote)) {
            rest = after;
        } else if let Some(text) = found.strip_prefix('"') {
            let slashes = |end: usize| text[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
            let end = if before.ends_with("r#") {
                text.find("\"#")
            } else {
                let is_raw = before.ends_with('r');
                text.match_indices('"').map(|(end, _)| end).find(|end| is_raw || slashes(*end).is_multiple_of(2))
            };
            let end = end.expect("a text ends");
            let words = text[..end].replace("\\\n", " ").replace("\\n", " ");
            let words = words.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
            texts.push(words.collect::<String>());
            rest = &text[end + 1..];
        } else {
            rest = &found[1..];
        }
    }
    texts.retain(|text| text.trim().contains(' '));
    texts
}

/// What an experiment, a path or a mix says in its own words, not in those of the paper that it names.
fn own_words(file: &str) -> String {
    let own = file.lines().filter(|line| !line.starts_with("paper = ") && !line.starts_with("source = "));
    own.collect::<Vec<_>>().join("\n").replace("\\\n", " ")
}

/// None of the texts, each with where it is, has a word that the glossary excludes.
fn assert_words(all: &[(String, String)]) {
    let wrong =
        all.iter().flat_map(|(name, text)| wrong_words(text).into_iter().map(move |what| format!("{name}: {what}")));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "the glossary in CONTRIBUTING.md has other words:\n{}", wrong.join("\n"));
}

#[test]
fn words_of_the_glossary() {
    let root = root();
    let documents =
        [root.join("README.md"), root.join("SECURITY.md")].into_iter().chain(files(&root.join("docs"), "md"));
    let texts = documents.chain(files(&root.join("schemas"), "json")).map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        (file.strip_prefix(&root).unwrap().display().to_string(), text)
    });
    let helps =
        commands().into_iter().map(|command| (format!("longhaul {} --help", command.join(" ")), help(&command)));
    let all: Vec<(String, String)> = texts.chain(helps).collect();
    assert!(all.len() > 100, "{} texts", all.len());
    assert_words(&all);
}

#[test]
fn words_of_the_glossary_in_what_programs_say() {
    let root = root();
    let programs = crates().into_values().flat_map(|folder| sources(&folder.join("src"))).filter(|file| !is_test(file));
    let said = programs.flat_map(|file| {
        let texts = texts(program(&fs::read_to_string(&file).unwrap()));
        texts.into_iter().map(move |text| (file.clone(), text))
    });
    let shown = ["experiments", "paths", "mixes"].into_iter().flat_map(|folder| files(&root.join(folder), "toml"));
    let shown = shown.map(|file| (file.clone(), own_words(&fs::read_to_string(&file).unwrap())));
    let all = said.chain(shown).map(|(file, text)| (file.strip_prefix(&root).unwrap().display().to_string(), text));
    let all: Vec<(String, String)> = all.collect();
    assert!(all.len() > 4000, "{} texts", all.len());
    assert_words(&all);
}

#[test]
fn texts_of_a_program_are_found() {
    let source = "say(\"{head} came \\\n    late, \\\"so\\\"\", '\"'); // \"no text\"\nname(\"head\", r#\"a \"b\" c\"#, r\"d \\\");";
    assert_eq!(texts(source), [" came      late, \\\"so\\\"", "a \"b\" c", "d \\"]);
    let file = "title = \"One\"\npaper = \"the bandwidth\"\nsays = \"Two\"";
    assert_eq!(own_words(file), "title = \"One\"\nsays = \"Two\"");
}

#[test]
fn a_wrong_word_is_found_by_itself_alone() {
    let text = "Packets came\nlate; a header ahead, one bandwidth-delay product, `wrong_head`.";
    assert_eq!(wrong_words(text), ["\"packets came late; a header ahead, one\": say reordered"]);
    assert_eq!(wrong_words("The head."), ["\"the head.\": say packet header or header snippet"]);
}
