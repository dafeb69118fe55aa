//! A saved result and its tables as pages read them.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;

use longhaul_captures::parquet_limits::Refused;
use longhaul_report::html::AboutHost;
use longhaul_report::html::over_time::Tested;
use longhaul_report::saved::Saved;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::Failure;
use crate::output::saved::{no_result, open_table};

/// Letters of a name in a page: of the longest command lines.
const NAME_MOST: usize = 4_096;

/// A result as it was read.
pub(super) struct Read<'a> {
    /// Where it was.
    pub(super) file: &'a Path,
    /// Its JSON.
    pub(super) text: &'a str,
    /// What that says.
    pub(super) saved: &'a Saved,
}

impl Read<'_> {
    /// What pages of tests have of it, with this `title`, and what they lack.
    pub(super) fn tested(&self, title: &str, left_out: Vec<String>) -> Tested<'_> {
        Tested {
            title: named(title),
            longhaul: named(&self.saved.longhaul),
            started_at: named(&self.saved.started_at),
            caveats: &self.saved.caveats,
            text: self.saved.text(),
            left_out,
        }
    }

    /// What pages about a measurement of `host` have of it.
    pub(super) fn about(&self, host: &str) -> AboutHost<'_> {
        AboutHost {
            host: named(host),
            longhaul: named(&self.saved.longhaul),
            started_at: named(&self.saved.started_at),
            caveats: &self.saved.caveats,
        }
    }

    /// What `read` makes of the table `name` beside the result; otherwise why it is not read, in words.
    pub(super) fn table<T>(&self, name: &str, read: impl FnOnce(File) -> Result<T, Refused>) -> Result<T, String> {
        let unread = |error: &dyn Display| format!("{}: {error}", named(name));
        let file = open_table(self.file, name).map_err(|error| unread(&error))?;
        read(file).map_err(|error| unread(&error))
    }

    /// What was asked, as far as `P` has it.
    pub(super) fn asked<P: DeserializeOwned>(&self) -> Result<P, Failure> {
        #[derive(Deserialize)]
        struct Parameters<P> {
            parameters: P,
        }
        let read = serde_json::from_str::<Parameters<P>>(self.text);
        read.map(|read| read.parameters).map_err(|error| no_result(self.file, format!("broken: {error}")))
    }

    /// There is no page of a result of `command`.
    pub(super) fn no_page(&self, command: &str) -> Failure {
        let message = format!("{}: results of {command} have no page", self.file.display());
        Failure::new("no_page", message).remedy("omit --html")
    }

    /// It is longer than any that a page draws.
    pub(super) fn too_long(&self) -> Failure {
        let message = format!("{}: the result is longer than any that a page draws", self.file.display());
        Failure::new("no_page", message).remedy("omit --html")
    }
}

/// A name or time of the result, of a length that a heading has room for.
pub(super) fn named(text: &str) -> String {
    text.chars().take(NAME_MOST).collect()
}
