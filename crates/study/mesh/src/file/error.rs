//! Why a text is no mesh.

use std::fmt;

use longhaul_units::nearest;

/// Letters of what a user wrote that an error repeats at most.
const SHOWN_MOST: usize = 80;

/// Why a mesh file is refused, in one line: where, which key, what is wrong, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshError {
    /// Line and column, from 1; `None` where a rule over the whole mesh is broken.
    pub position: Option<(usize, usize)>,
    /// The key with the tables around it, such as `site[2].rate`, counted from 0 as TOML tools do.
    pub key: String,
    /// What is wrong with it and what is allowed.
    pub message: String,
}

impl MeshError {
    pub(crate) fn new(key: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { position: None, key: key.to_string(), message: message.to_string() }
    }
}

impl fmt::Display for MeshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for MeshError {}

/// What a user wrote, as an error repeats it: in one line of bounded length.
pub(crate) fn shown(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).take(SHOWN_MOST).collect();
    format!("`{clean}`")
}

/// What may stand in place of `word`: the one that was likely meant, and all, unless they are too many to list.
pub(crate) fn one_of<'a>(word: &str, allowed: impl IntoIterator<Item = &'a str>) -> String {
    let allowed: Vec<&str> = allowed.into_iter().collect();
    let meant = nearest(word, allowed.iter().copied()).map_or(String::new(), |meant| format!("did you mean {meant}? "));
    let some = allowed.iter().take(20).copied().collect::<Vec<_>>().join(", ");
    let more = if allowed.len() > 20 { format!(" and {} more", allowed.len() - 20) } else { String::new() };
    format!("{meant}use {some}{more}")
}
