//! A doubt about a result.

use std::collections::HashSet;

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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    /// Each caveat once, in order: both ends and both directions of a test may raise the same. A file of others may have very many.
    pub fn unique(caveats: Vec<Self>) -> Vec<Self> {
        let mut known = HashSet::with_capacity(caveats.len());
        let are_new: Vec<bool> = caveats.iter().map(|caveat| known.insert(caveat)).collect();
        drop(known);
        caveats.into_iter().zip(are_new).filter_map(|(caveat, is_new)| is_new.then_some(caveat)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caveat_is_told_once_where_it_came_first() {
        let caveat = |code: &str, message: &str, remedy: &str| Caveat::of_error(code, message, remedy);
        let (late, later) = (caveat("late", "by 3 ms", "wait"), caveat("late", "by 8 ms", "wait"));
        let others = [caveat("lost", "by 3 ms", "wait"), caveat("late", "by 3 ms", "")];
        let all = [&[later.clone(), late.clone()][..], &others, &[late.clone(), later.clone()], &others].concat();
        let expected = [&[later, late][..], &others].concat();
        assert_eq!(Caveat::unique(all), expected);
    }
}
