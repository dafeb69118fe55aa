//! Why a text is no path.

use longhaul_units::nearest;
use std::fmt;

/// Why a path file is refused: one line with the place, the text there, and what is allowed.
///
/// Shown as `tokyo.toml:3:8: forward[0].rate: …`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecError {
    /// The file, where there is one.
    pub file: Option<String>,
    /// Line and column, both counted from 1; `None` where a rule over the whole path is broken.
    pub position: Option<(usize, usize)>,
    /// The key with the tables around it, such as `forward[0].rate`, counted from 0 as TOML tools do.
    pub key: Option<String>,
    /// What is wrong with it and what is allowed.
    pub message: String,
}

impl SpecError {
    pub(crate) fn new(key: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self { key: Some(one_line(&key.into(), 100)), message: one_line(message.as_ref(), 400), ..Self::default() }
    }

    /// The same with the file's name, unless it has one.
    #[must_use]
    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.file.get_or_insert_with(|| one_line(file, 300));
        self
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.position) {
            (Some(file), Some((line, column))) => write!(f, "{file}:{line}:{column}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, Some((line, column))) => write!(f, "line {line}, column {column}: ")?,
            (None, None) => {}
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for SpecError {}

/// `text` without control characters, cut after `most` characters: what a user typed must not break the line.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for (index, c) in text.chars().enumerate() {
        if index == most {
            line.push('…');
            break;
        }
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// A value as it is shown in a message.
pub(crate) fn shown(text: &str) -> String {
    format!("`{}`", one_line(text, 60))
}

/// What may stand in place of `word`: the one that was likely meant, and all.
pub(crate) fn one_of(word: &str, allowed: &[&str]) -> String {
    // It may be in the form of a message already.
    let word = word.trim_matches('`');
    let meant = nearest(word, allowed.iter().copied()).map_or(String::new(), |meant| format!("did you mean {meant}? "));
    format!("{meant}use {}", allowed.join(", "))
}
