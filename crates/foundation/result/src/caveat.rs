//! A doubt about a result.

use serde::{Deserialize, Serialize};

/// The kind of a caveat. Each crate that raises caveats has a table of its codes, made by [`caveat_codes!`](crate::caveat_codes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaveatCode(&'static str);

impl CaveatCode {
    // Other crates make one by the macro, so that it is in a table.
    #[doc(hidden)]
    pub const fn of_table(code: &'static str) -> Self {
        Self(code)
    }

    /// The code as results have it.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// Makes a table of caveats: a constant for each code, with its meaning as documentation.
#[macro_export]
macro_rules! caveat_codes {
    ($($(#[doc = $meaning:literal])+ $name:ident = $code:literal;)+) => {
        $($(#[doc = $meaning])+ pub const $name: $crate::CaveatCode = $crate::CaveatCode::of_table($code);)+
    };
}

/// A doubt about a result: why a number may not be what it seems, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
// Other crates make one by `Caveat::new`, so that its code is in a table.
#[non_exhaustive]
pub struct Caveat {
    /// The kind of doubt, for programs, such as `emulator_late`. docs/reference/caveats.md has all.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z][a-z0-9_]*$")))]
    pub code: String,
    /// What the doubt is, in one line.
    pub message: String,
    /// What to do; empty if the message says it, or if nothing helps.
    pub remedy: String,
}

impl Caveat {
    /// Makes a caveat of a code from a table.
    pub fn new(code: CaveatCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code: code.0.into(), message: message.into(), remedy: remedy.into() }
    }

    /// A caveat with the code of an error, which is in no table: a part of a result is missing for that reason. Also one that another host
    /// reports, whatever its code.
    pub fn of_error(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), remedy: remedy.into() }
    }

    /// Whether it is this kind of doubt.
    pub fn is(&self, code: CaveatCode) -> bool {
        self.code == code.0
    }

    /// The same doubt about one part of a result, which `part` names.
    pub fn about(&self, part: &str) -> Self {
        Self { message: format!("{part}: {}", self.message), ..self.clone() }
    }

    /// The same doubt with another remedy.
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
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
