//! The page of a saved result: that which `--html` of its command writes, as far as the result and the tables beside it have what it draws.

use std::path::Path;

use longhaul_diagnosis::Diagnosed;
use longhaul_report::html::round_trips::measured;
use longhaul_report::html::{diagnosed, sweep};
use longhaul_report::saved::{Content, DiagnoseAsked, Saved};
use longhaul_rtt::RttResult;
use longhaul_sweep::{MOST_TESTS, SweepResult};
use longhaul_terms::Directions;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::Failure;
use crate::output::saved::no_result;

/// Letters of a name in a page: of the longest command lines.
const NAME_MOST: usize = 4_096;
/// Steps of a line by size, for all its sizes: the page looks at each for each. Measurements have some sizes and a few steps.
const STEPS_MOST: usize = 1 << 20;

/// A result as it was read.
pub(super) struct Read<'a> {
    /// Where it was.
    pub(super) file: &'a Path,
    /// Its JSON.
    pub(super) text: &'a str,
    /// What that says.
    pub(super) saved: &'a Saved,
}

/// The host that was asked.
#[derive(Deserialize)]
struct Host {
    host: String,
}

impl Read<'_> {
    /// The page.
    ///
    /// # Errors
    /// The command has none, or no page has room for the result.
    pub(super) fn page(&self) -> Result<String, Failure> {
        match &self.saved.content {
            Content::Diagnose(asked, results) => Ok(self.diagnosed(asked, results)),
            Content::Rtt(result) => self.measured(result),
            Content::Sweep(result) => self.swept(result),
            Content::Udp(..) => Err(self.no_page("longhaul udp")),
            Content::Tcp(..) => Err(self.no_page("longhaul tcp")),
            Content::Watch(_) => Err(self.no_page("longhaul watch")),
            Content::Analyze(_) => Err(self.no_page("longhaul analyze")),
            Content::Compare(_) => Err(self.no_page("longhaul compare")),
            Content::WatchUdp(_) => Err(self.no_page("longhaul watch --udp")),
            Content::CompareUdp(_) => Err(self.no_page("longhaul compare of two longhaul watch --udp")),
            Content::DiagnoseFlows(_) => Err(self.no_page("longhaul diagnose without a test")),
            Content::LongPath(_) => Err(self.no_page("longhaul diagnose --rtt")),
            Content::Hops(_) => Err(self.no_page("longhaul rtt --to-each-hop")),
        }
    }

    fn measured(&self, result: &RttResult) -> Result<String, Failure> {
        if result.by_size.as_ref().is_some_and(|all| all.sizes.len().saturating_mul(all.steps.len()) > STEPS_MOST) {
            return Err(self.too_long());
        }
        let report = measured::Report {
            host: named(&self.asked::<Host>()?.host),
            longhaul: named(&self.saved.longhaul),
            started_at: named(&self.saved.started_at),
            result,
            caveats: &self.saved.caveats,
            text: self.saved.text(),
        };
        Ok(report.html())
    }

    fn swept(&self, result: &SweepResult) -> Result<String, Failure> {
        if result.points.len() > MOST_TESTS {
            return Err(self.too_long());
        }
        let report = sweep::Report {
            host: named(&self.asked::<Host>()?.host),
            longhaul: named(&self.saved.longhaul),
            started_at: named(&self.saved.started_at),
            result,
            caveats: &self.saved.caveats,
            text: self.saved.text(),
        };
        Ok(report.html())
    }

    fn diagnosed(&self, asked: &DiagnoseAsked, results: &Directions<Diagnosed>) -> String {
        let directions = match results {
            Directions::One(result) => vec![(if asked.reverse { "backward" } else { "forward" }, &**result)],
            Directions::Both { forward, backward } => vec![("forward", &**forward), ("backward", &**backward)],
        };
        diagnosed::Report {
            host: named(&asked.host),
            longhaul: named(&self.saved.longhaul),
            started_at: named(&self.saved.started_at),
            directions,
            caveats: &self.saved.caveats,
        }
        .html()
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

    fn no_page(&self, command: &str) -> Failure {
        let message = format!("{}: there is no page of a result of `{command}`", self.file.display());
        Failure::new("no_page", message).remedy("omit --html")
    }

    fn too_long(&self) -> Failure {
        let message = format!("{}: the result is longer than any that a page draws", self.file.display());
        Failure::new("no_page", message).remedy("omit --html")
    }
}

/// A name or time of the result, of a length that a heading has room for.
pub(super) fn named(text: &str) -> String {
    text.chars().take(NAME_MOST).collect()
}
