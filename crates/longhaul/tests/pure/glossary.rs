//! The words of the glossary in CONTRIBUTING.md, in what users read: help, documents, schemas.

use std::fs;
use std::path::{Path, PathBuf};

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
    let wrong =
        all.iter().flat_map(|(name, text)| wrong_words(text).into_iter().map(move |what| format!("{name}: {what}")));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "the glossary in CONTRIBUTING.md has other words:\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_word_is_found_by_itself_alone() {
    let text = "Packets came\nlate; a header ahead, one bandwidth-delay product, `wrong_head`.";
    assert_eq!(wrong_words(text), ["\"packets came late; a header ahead, one\": say reordered"]);
    assert_eq!(wrong_words("The head."), ["\"the head.\": say packet header or header snippet"]);
}
