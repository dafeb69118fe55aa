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
//!
//! A series has a point for each rate, and one more for the mix sent as fast as it goes, which is what findings are about.

use std::path::Path;

use longhaul_mix::MixSpec;
use longhaul_path::spec::PathSpec;
use longhaul_report::html::mix::{AS_FAST, QUANTITIES};
use longhaul_report::html::udp_loss::mbit;
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};
use toml::Table;

use super::finding::{FindingText, Subjects};
use super::{Experiment, ExperimentError, Repeats, SERIES_MOST, is_toml_below, name_of};

const RATES_MOST: usize = 64;
/// A run is long enough for the kernel's CPU times, which it counts in steps of 10 ms.
const TIMES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(3600);

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
    /// Bits a second on a wire (L1): a point each, and after them one at which the mix is sent as fast as it goes.
    pub rates: Vec<BitRate>,
    /// How long it is sent, twice in each run: alone and beside a TCP flow; or made alone and sent.
    pub time: Nanos,
    /// How often each point is run. The last rate is quick, and what is sent as fast as it goes.
    pub repeats: Repeats,
}

impl MixSeries {
    /// What its points are called.
    pub fn labels(&self) -> Vec<String> {
        labels(&self.rates)
    }

    /// The rate of a point, from 0; `None`: as fast as it goes.
    pub fn rate(&self, point: usize) -> Option<BitRate> {
        self.rates.get(point).copied()
    }
}

fn labels(rates: &[BitRate]) -> Vec<String> {
    rates.iter().map(|rate| mbit(rate.0)).chain([AS_FAST.to_owned()]).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    note: String,
    mix: String,
    rates: Vec<BitRate>,
    time: Nanos,
    repeat: Option<u32>,
    series: Vec<SeriesText>,
    #[serde(default)]
    finding: Vec<FindingText>,
    #[serde(rename = "full")]
    _full: Option<Table>,
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
    repeat: Option<u32>,
    #[serde(rename = "full")]
    _full: Option<Table>,
}

impl Experiment {
    /// Reads the text of one with a mix. A mix file that it names lies in `folder` or below.
    pub(super) fn of_mix(written: Text, folder: &Path) -> Result<Self, ExperimentError> {
        let title = name_of("title", &written.title)?;
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
        let labels = labels(&written.rates);
        let as_fast = written.rates.len();
        let quick = labels[as_fast - 1..].to_vec();
        let mut series: Vec<MixSeries> = Vec::new();
        for (number, one) in written.series.into_iter().enumerate() {
            let at = |key: &str| format!("series[{number}].{key}");
            let name = name_of(&at("name"), &one.name)?;
            if series.iter().any(|other| other.name == name) {
                return Err(ExperimentError::at(at("name"), format!("`{name}` is another's name already")));
            }
            if one.paper_received.len() > RATES_MOST
                || one.paper_received.iter().any(|(_, taken)| !taken.is_finite() || *taken < 0.0)
            {
                let allowed = format!("at most {RATES_MOST} of [rate, frames a second]");
                return Err(ExperimentError::at(at("paper_received"), allowed));
            }
            let sized = mix.clone().with_size(one.size).map_err(|error| ExperimentError::at(at("size"), error))?;
            let place = format!("series[{number}]");
            series.push(MixSeries {
                name,
                paper: one.paper,
                paper_received: one.paper_received,
                receiver: one.receiver,
                mix: sized,
                frame_bytes: one.size,
                rates: written.rates.clone(),
                time: written.time,
                repeats: Repeats::of(&place, (one.repeat, written.repeat), Some(quick.clone()), &labels)?,
            });
        }
        let names = series.iter().map(|series| series.name.as_str());
        let subjects = Subjects::of_series(QUANTITIES[0], QUANTITIES, names, as_fast);
        let findings = subjects.findings(written.finding)?;
        // No emulator is between the hosts.
        let path = PathSpec { name: "cable".into(), ..PathSpec::default() };
        let Text { source, note, .. } = written;
        Ok(Self {
            title,
            source,
            note,
            calibrate: false,
            path,
            udp: Vec::new(),
            tcp: Vec::new(),
            mix: series,
            findings,
        })
    }

    /// The same with another mix, in frames of the same sizes.
    ///
    /// # Errors
    /// It has none, or a kind of frame of the mix does not fit a size of the experiment.
    pub fn with_mix(mut self, mix: &MixSpec) -> Result<Self, ExperimentError> {
        if self.mix.is_empty() {
            let which = "for experiments with a mix: nima, or a file with the key `mix`";
            return Err(ExperimentError::at("--mix", which));
        }
        for series in &mut self.mix {
            let sized = mix.clone().with_size(series.frame_bytes);
            series.mix = sized.map_err(|error| ExperimentError::at("--mix", error))?;
        }
        Ok(self)
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
        let nima = Experiment::load("nima").unwrap();
        assert_eq!((nima.mix.len(), nima.udp.len(), nima.tcp.len()), (9, 0, 0));
        // Figure 7, 64 bytes: with the filter four times what figure 5 has without.
        let most = |name: &str| nima.mix.iter().find(|one| one.name == name).unwrap().paper_received[7].1;
        assert_eq!((most("64 bytes, without a filter"), most("64 bytes, filter")), (12_000.0, 48_000.0));
        let first = &nima.mix[0];
        assert_eq!((first.rates.len(), first.labels().len(), first.rate(8)), (8, 9, None));
        assert_eq!((first.labels()[7].as_str(), first.labels()[8].as_str()), ("1000", AS_FAST));
        // No point has fewer runs than those of other experiments; a quick look has what findings are about.
        assert_eq!((first.repeats.count, first.repeats.quick.as_slice()), (5, [7, 8].as_slice()));
        // The gain at each size, as fast as it goes.
        assert_eq!(nima.findings.len(), 3);
        assert_eq!(nima.findings[2].points, [(7, 8), (6, 8)]);
    }

    #[test]
    fn another_mix_is_for_experiments_that_have_one() {
        let own = MixSpec::parse("name = 'ours'\nsize = 300\n[[class]]\nkind = 'stream'\nweight = 1\n").unwrap();
        let ours = Experiment::load("nima").unwrap().with_mix(&own).unwrap();
        assert!(ours.mix.iter().all(|series| series.mix.name == "ours"));
        let nima = Experiment::load("nima").unwrap();
        assert_ne!(ours.identity(), nima.identity(), "its runs are no others'");
        let mut without = nima.clone();
        without.mix.iter_mut().for_each(|series| series.paper_received.clear());
        assert_eq!(without.identity(), nima.identity(), "what the paper has changes no run");
        let error = Experiment::load("nlr-tcp").unwrap().with_mix(&own).unwrap_err().to_string();
        assert_eq!(error, "--mix: for experiments with a mix: nima, or a file with the key `mix`");
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
        let read = Experiment::parse(&text("ours.toml"), &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap().mix[0].mix.name, "ours");
        for elsewhere in ["../ours.toml", "/etc/shadow"] {
            let error = Experiment::parse(&text(elsewhere), &folder).unwrap_err().to_string();
            assert!(error.contains("or a .toml file in the experiment's folder"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let good = "title = \"t\"\nmix = \"nima\"\nrates = [\"1M\"]\ntime = \"100ms\"\n[[series]]\nname = \"a\"\nreceiver = \"plain\"\nsize = 64\n";
        assert!(Experiment::parse(good, Path::new("")).is_ok());
        for (from, to, said) in [
            ("size = 64", "size = 9", "series[0].size: size: 9: 64 to 1518 bytes"),
            ("\"plain\"", "\"plane\"", "unknown variant `plane`, expected one of `plain`, `filter`, `nftables`"),
            ("\"nima\"", "\"nimo\"", "mix: `nimo` does not come with longhaul; use one of nima"),
            ("\"1M\"", "", "rates: 0 of them, 1 to 64"),
            ("\"1M\"", "\"0\"", "rates: 0bit: more than 0"),
            ("size = 64", "size = 64\npaper_received = [[\"1M\", -1.0]]", "series[0].paper_received: at most 64"),
            ("100ms", "99ms", "4:time: 99ms: 100ms to"),
            ("size = 64", "size = 64\nrepeat = 0", "9:series[0].repeat: 0: 1 to 1000"),
        ] {
            let error = Experiment::parse(&good.replacen(from, to, 1), Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{to}: {error}");
        }
    }
}
