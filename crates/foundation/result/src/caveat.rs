//! A doubt about a result.

use serde::{Deserialize, Serialize};

/// A doubt about a result: why a number may not be what it seems, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caveat {
    /// Names the kind of doubt, for programs.
    pub code: String,
    /// Says what is the matter, in one line.
    pub message: String,
    /// Says what to do; empty where the message does.
    pub remedy: String,
}

impl Caveat {
    /// Makes a caveat.
    pub fn new(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), remedy: remedy.into() }
    }

    /// The same doubt about one part of a result, which `part` names.
    pub fn about(&self, part: &str) -> Self {
        Self { message: format!("{part}: {}", self.message), ..self.clone() }
    }

    /// Each caveat once, in order: both ends and both directions of a test may raise the same.
    pub fn unique(caveats: Vec<Self>) -> Vec<Self> {
        let mut unique = Vec::new();
        for caveat in caveats {
            if !unique.contains(&caveat) {
                unique.push(caveat);
            }
        }
        unique
    }
}
