//! Experiments about a receiver under a mix, as a TOML file (`docs/reference/experiments.md` has every key).
//!
//! ```toml
//! title = "What a filter saves"
//! mix = "nima"
//! rates = ["10M", "100M", "1G"]
//! [[series]]
//! name = "64 bytes, filter"
//! receiver = "filter"
//! size = 64
//! ```

use std::path::Path;

use longhaul_mix::MixSpec;
use longhaul_report::html::mix::QUANTITIES;
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use super::finding::{Finding, FindingText, Subjects};
use super::{ExperimentError, FILE_BYTES_MOST, check_name, is_toml_below, read_toml};

const SERIES_MOST: usize = 64;
const RATES_MOST: usize = 64;
/// A run is long enough for the kernel's CPU times, which it counts in steps of 10 ms.
const TIMES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3600);

/// How often a series is sent as fast as it goes: the fewest that have an interval worth the name.
pub(crate) const MOST_RUNS: u32 = 3;
/// What a time takes beside itself.
const BESIDE: Nanos = Nanos::from_millis(50);

/// Experiments that come with longhaul: name and text.
pub(super) const KNOWN: &[(&str, &str)] = &[("nima", include_str!("../../../../../experiments/nima.toml"))];

/// What a receiver does about frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverKind {
    /// Its stack sorts them out.
    Plain,
    /// longhaul's filter, enforcing.
    Filter,
    /// nftables at netdev ingress with the rules of the paper's algorithm.
    Nftables,
}

impl ReceiverKind {
    /// As an experiment says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Filter => "filter",
            Self::Nftables => "nftables",
        }
    }
}

/// An experiment about a receiver under a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct MixExperiment {
    /// What it is about, in a line.
    pub title: String,
    /// What it repeats: paper and figures.
    pub source: String,
    /// Where it differs from that.
    pub note: String,
    /// What is sent, but for its sizes.
    pub mix: MixSpec,
    /// Bits a second on a wire (L1).
    pub rates: Vec<BitRate>,
    /// How long each rate is sent, twice: alone, and beside a TCP flow.
    pub time: Nanos,
    /// What differs.
    pub series: Vec<MixSeries>,
    /// What should come of it: each point is a series.
    pub findings: Vec<Finding>,
}

/// All rates to one receiver, with frames of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct MixSeries {
    /// What sets it apart.
    pub name: String,
    /// What the source has there.
    pub paper: String,
    /// What the source's receiver took: rate on a wire, frames a second.
    pub paper_received: Vec<(BitRate, f64)>,
    /// What the receiver does about frames.
    pub receiver: ReceiverKind,
    /// The mix with frames of one size.
    pub mix: MixSpec,
    /// That size, FCS included.
    pub frame_bytes: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    note: String,
    mix: String,
    rates: Vec<BitRate>,
    time: Nanos,
    series: Vec<SeriesText>,
    #[serde(default)]
    finding: Vec<FindingText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesText {
    name: String,
    #[serde(default)]
    paper: String,
    #[serde(default)]
    paper_received: Vec<(BitRate, f64)>,
    receiver: ReceiverKind,
    size: u16,
}

impl MixExperiment {
    /// The experiment of this kind that comes with longhaul under that name, else the file there; `None` where it is of another kind.
    ///
    /// # Errors
    /// Where it is of this kind and refused.
    pub fn load(name_or_file: &str) -> Result<Option<Self>, ExperimentError> {
        let text = match KNOWN.iter().find(|(name, _)| *name == name_or_file) {
            Some((_, text)) => (*text).to_owned(),
            None => match longhaul_units::read_text(Path::new(name_or_file), FILE_BYTES_MOST) {
                Ok(text) => text,
                // Whoever reads it as another kind says what is the matter.
                Err(_) => return Ok(None),
            },
        };
        if !read_toml::<toml::Table>(&text).is_ok_and(|table| table.contains_key("mix")) {
            return Ok(None);
        }
        let folder = Path::new(name_or_file).parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map(Some).map_err(|error| error.in_file(name_or_file))
    }

    /// Reads the text of an experiment. A mix file that it names lies in `folder` or below.
    ///
    /// # Errors
    /// The text is not TOML, lacks a key, or has an unknown key or a value that is not allowed.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ExperimentError> {
        let written: Text = read_toml(text)?;
        check_name("title", &written.title)?;
        let mix = load_mix(&written.mix, folder)?;
        for (key, count, most) in
            [("rates", written.rates.len(), RATES_MOST), ("series", written.series.len(), SERIES_MOST)]
        {
            if !(1..=most).contains(&count) {
                return Err(ExperimentError::at(key, format!("{count} of them, 1 to {most}")));
            }
        }
        if let Some(rate) = written.rates.iter().find(|rate| rate.0 == 0) {
            return Err(ExperimentError::at("rates", format!("{rate}: more than 0")));
        }
        if !TIMES.contains(&written.time) {
            let allowed = format!("{}: {} to {}", written.time, TIMES.start(), TIMES.end());
            return Err(ExperimentError::at("time", allowed));
        }
        let mut series: Vec<MixSeries> = Vec::new();
        for (number, one) in written.series.into_iter().enumerate() {
            let at = |key: &str| format!("series[{number}].{key}");
            check_name(&at("name"), &one.name)?;
            if series.iter().any(|other| other.name == one.name) {
                return Err(ExperimentError::at(at("name"), format!("`{}` is another's name already", one.name)));
            }
            if one.paper_received.len() > RATES_MOST
                || one.paper_received.iter().any(|(_, taken)| !taken.is_finite() || *taken < 0.0)
            {
                let allowed = format!("at most {RATES_MOST} of [rate, frames a second]");
                return Err(ExperimentError::at(at("paper_received"), allowed));
            }
            let sized = mix.clone().with_size(one.size).map_err(|error| ExperimentError::at(at("size"), error))?;
            series.push(MixSeries {
                name: one.name,
                paper: one.paper,
                paper_received: one.paper_received,
                receiver: one.receiver,
                mix: sized,
                frame_bytes: one.size,
            });
        }
        let names = series.iter().map(|series| series.name.as_str());
        let findings = Subjects::of_series(QUANTITIES[0], QUANTITIES, names).findings(written.finding)?;
        let (title, source, note) = (written.title, written.source, written.note);
        Ok(Self { title, source, note, mix, rates: written.rates, time: written.time, series, findings })
    }

    /// The same with another mix, in frames of the same sizes.
    ///
    /// # Errors
    /// A kind of frame of the mix does not fit a size of the experiment.
    pub fn with_mix(mut self, mix: MixSpec) -> Result<Self, ExperimentError> {
        for series in &mut self.series {
            let sized = mix.clone().with_size(series.frame_bytes);
            series.mix = sized.map_err(|error| ExperimentError::at("--mix", error))?;
        }
        self.mix = mix;
        Ok(self)
    }

    /// The same with the first and the last rate alone.
    #[must_use]
    pub fn quick(mut self) -> Self {
        let last = self.rates.len().saturating_sub(1);
        let mut number = 0;
        self.rates.retain(|_| {
            number += 1;
            [0, last].contains(&(number - 1))
        });
        self
    }

    /// The same with those series whose name has one of `wanted` in it, whatever the case; all if `wanted` is empty. Findings about others go.
    ///
    /// # Errors
    /// One of `wanted` is in no series' name.
    pub fn only(mut self, wanted: &[String]) -> Result<Self, ExperimentError> {
        let has = |name: &str, wanted: &str| name.to_lowercase().contains(&wanted.trim().to_lowercase());
        if let Some(none) = wanted.iter().find(|wanted| !self.series.iter().any(|series| has(&series.name, wanted))) {
            let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
            let why = format!("no series has `{}` in its name: {}", none.escape_debug(), names.join("; "));
            return Err(ExperimentError::at("--only", why));
        }
        let chosen = |series: &MixSeries| wanted.is_empty() || wanted.iter().any(|wanted| has(&series.name, wanted));
        // Where each series that stays is then.
        let mut places = Vec::new();
        for series in &self.series {
            let before = places.iter().flatten().count();
            places.push(chosen(series).then_some(before));
        }
        self.findings.retain(|finding| finding.points.iter().all(|(series, _)| places[*series].is_some()));
        for (series, _) in self.findings.iter_mut().flat_map(|finding| &mut finding.points) {
            *series = places[*series].unwrap_or_default();
        }
        self.series.retain(chosen);
        Ok(self)
    }

    /// About how long a series takes: each rate twice, and three times as fast as it goes, with making the frames alone.
    pub fn time_of_series(&self) -> Nanos {
        let parts = 2 * self.rates.len() as u64 + 2 * u64::from(MOST_RUNS);
        Nanos((self.time.0 + BESIDE.0).saturating_mul(parts))
    }
}

/// A mix that comes with longhaul, or a file of the user.
fn load_mix(name_or_file: &str, folder: &Path) -> Result<MixSpec, ExperimentError> {
    if !is_toml_below(name_or_file) {
        let more = ", or a .toml file in the experiment's folder or below it";
        return MixSpec::preset(name_or_file)
            .map_err(|error| ExperimentError::at("mix", format_args!("{error}{more}")));
    }
    MixSpec::load(&folder.join(name_or_file).to_string_lossy()).map_err(|error| ExperimentError::at("mix", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nima_has_the_papers_rates_and_sizes() {
        let nima = MixExperiment::load("nima").unwrap().unwrap();
        assert_eq!((nima.rates.len(), nima.series.len()), (8, 9));
        // Figure 7, 64 bytes: with the filter four times what figure 5 has without.
        let most = |name: &str| nima.series.iter().find(|one| one.name == name).unwrap().paper_received[7].1;
        assert_eq!((most("64 bytes, without a filter"), most("64 bytes, filter")), (12_000.0, 48_000.0));
        assert!(MixExperiment::load("nlr-udp-loss").unwrap().is_none());
        // The gain at each size.
        assert_eq!(nima.findings.len(), 3);
        assert_eq!(nima.findings[2].points, [(7, 0), (6, 0)]);
    }

    #[test]
    fn a_part_of_an_experiment_keeps_the_findings_about_it() {
        let nima = MixExperiment::load("nima").unwrap().unwrap();
        let large = nima.clone().only(&["1518 BYTES".into()]).unwrap().quick();
        assert_eq!((large.series.len(), large.rates.len(), large.findings.len()), (3, 2, 1));
        assert_eq!(large.findings[0].points, [(1, 0), (0, 0)]);
        // 2 rates twice and 3 times the most, made and sent, each 550 ms.
        assert_eq!(large.time_of_series(), Nanos::from_millis(5_500));
        assert_eq!(nima.clone().only(&[]).unwrap(), nima);
        let error = nima.only(&["9000".into()]).unwrap_err().to_string();
        assert!(error.starts_with("--only: no series has `9000` in its name: 64 bytes, without a filter; "), "{error}");
    }

    /// A mix file beside the experiment is read; one elsewhere is not.
    #[test]
    fn a_mix_can_be_a_file_beside_the_experiment() {
        let folder = std::env::temp_dir().join(format!("longhaul-mix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = "name = \"ours\"\nsize = 300\n[[class]]\nkind = \"stream\"\nweight = 1\n";
        std::fs::write(folder.join("ours.toml"), own).unwrap();
        let text = |mix: &str| {
            format!(
                "title = 't'\nmix = '{mix}'\nrates = ['1M']\ntime = '100ms'\n[[series]]\nname = 'a'\nreceiver = 'plain'\nsize = 64\n"
            )
        };
        let read = MixExperiment::parse(&text("ours.toml"), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap().mix.name, "ours");
        for elsewhere in ["../ours.toml", "/etc/shadow"] {
            let error = MixExperiment::parse(&text(elsewhere), &folder).unwrap_err().to_string();
            assert!(error.contains("or a .toml file in the experiment's folder"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let good = "title = \"t\"\nmix = \"nima\"\nrates = [\"1M\"]\ntime = \"100ms\"\n[[series]]\nname = \"a\"\nreceiver = \"plain\"\nsize = 64\n";
        assert!(MixExperiment::parse(good, Path::new("")).is_ok());
        for (from, to, said) in [
            ("size = 64", "size = 9", "series[0].size: size: 9: 64 to 1518 bytes"),
            ("\"plain\"", "\"plane\"", "unknown variant `plane`, expected one of `plain`, `filter`, `nftables`"),
            ("\"nima\"", "\"nimo\"", "mix: `nimo` does not come with longhaul; use one of nima"),
            ("\"1M\"", "", "rates: 0 of them, 1 to 64"),
            ("\"1M\"", "\"0\"", "rates: 0bit: more than 0"),
            ("size = 64", "size = 64\npaper_received = [[\"1M\", -1.0]]", "series[0].paper_received: at most 64"),
            ("100ms", "99ms", "time: 99ms: 100ms to"),
        ] {
            let error = MixExperiment::parse(&good.replacen(from, to, 1), Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{to}: {error}");
        }
    }
}
