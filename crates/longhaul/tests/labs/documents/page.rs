//! What of a Markdown page is code, and what it says of each block.

use std::fs;
use std::path::Path;

use crate::common::root;

/// A page of the documents.
pub(crate) struct Page {
    /// Its path in the repository.
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
    /// Code in prose, with its line.
    pub(crate) inline: Vec<(usize, String)>,
}

/// A fenced block of code.
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    language: String,
    text: String,
    pub(crate) fate: Fate,
}

/// What the comment before a block says about it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// `<!-- run -->`
    Run,
    /// `<!-- not run: why -->`
    NotRun(String),
    /// No comment: its commands are parsed, nothing more.
    Parsed,
}

impl Page {
    /// README.md and every page of docs/, in order of their names.
    pub(crate) fn all() -> Vec<Self> {
        let mut names = vec!["README.md".to_owned()];
        collect(Path::new("docs"), &mut names);
        names.sort_unstable();
        let pages: Vec<Self> = names.into_iter().map(Self::read).collect();
        assert!(pages.len() > 10, "the pages are where they were");
        pages
    }

    fn read(name: String) -> Self {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let (mut blocks, mut inline) = (Vec::new(), Vec::new());
        let mut fate = Fate::Parsed;
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let text = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
                let text = text.map(|line| format!("{line}\n")).collect();
                let fate = std::mem::replace(&mut fate, Fate::Parsed);
                blocks.push(Block { line: number, language: language.to_owned(), text, fate });
            } else if let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) {
                fate = match comment.strip_prefix("not run: ") {
                    Some(why) => Fate::NotRun(why.to_owned()),
                    None if comment == "run" => Fate::Run,
                    None => Fate::Parsed,
                };
            } else if !line.is_empty() {
                fate = Fate::Parsed;
                inline.extend(line.split('`').skip(1).step_by(2).map(|code| (number, code.to_owned())));
            }
        }
        Self { name, blocks, inline }
    }
}

fn collect(folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            names.push(path.to_str().unwrap().to_owned());
        }
    }
}

impl Block {
    pub(crate) fn is_shell(&self) -> bool {
        matches!(&*self.language, "sh" | "console")
    }

    /// What is typed: all of an `sh` block; of a `console` block what stands behind a prompt, `$ `, `# `, or that of a host, `site# `.
    pub(crate) fn script(&self) -> String {
        let typed = |line: &str| {
            let (prompt, command) = line.split_once(' ')?;
            let host = prompt.strip_suffix(['$', '#'])?;
            host.chars().all(|c| c.is_ascii_alphanumeric()).then(|| format!("{command}\n"))
        };
        if self.language == "console" { self.text.lines().filter_map(typed).collect() } else { self.text.clone() }
    }
}
