//! Paths that come with longhaul: those of the papers, and a short one to compare with.
//!
//! Their texts are the files in `paths/`, which say where each figure comes from.

use std::path::Path;

use longhaul_units::nearest;

use crate::spec::{PathSpec, SpecError, no_files};

/// A path that comes with longhaul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// What it is called by.
    pub name: &'static str,
    /// Its path file.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../../../../paths/", $name, ".toml")) }),*]
    };
}

const PRESETS: &[Preset] = presets![
    "nlr-tiny",
    "nlr-small",
    "nlr-medium",
    "nlr-large",
    "datatag",
    "datatag-2.5g",
    "tokyo",
    "amsterdam-sandiego",
    "lan",
    "two-clients",
    "teragrid",
];

impl Preset {
    /// The path.
    ///
    /// # Errors
    /// None in a tested build: each preset is parsed by a test.
    pub fn spec(&self) -> Result<PathSpec, SpecError> {
        PathSpec::parse(self.text, &no_files).map_err(|error| error.in_file(self.name))
    }
}

/// Every preset, the paths of a paper together.
pub fn list() -> &'static [Preset] {
    PRESETS
}

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The preset of that name, else the path file there. `./tokyo` is always a file.
///
/// # Errors
/// Where it is neither (naming the presets that come near), or the file is refused.
pub fn load(name_or_file: &str) -> Result<PathSpec, SpecError> {
    if let Some(preset) = find(name_or_file) {
        return preset.spec();
    }
    let path = Path::new(name_or_file);
    let is_file_name = name_or_file.contains('/') || name_or_file.ends_with(".toml");
    if is_file_name || path.exists() {
        return PathSpec::load(path);
    }
    Err(SpecError::new(
        crate::spec::shown(name_or_file),
        format!("neither a preset nor a file; {}", suggestion(name_or_file)),
    ))
}

fn suggestion(name: &str) -> String {
    let names = || PRESETS.iter().map(|preset| preset.name);
    let mut near: Vec<&str> = names().filter(|preset| name.len() >= 3 && preset.contains(name)).collect();
    if near.is_empty() {
        near.extend(nearest(name, names()));
    }
    if near.is_empty() {
        return format!("presets are {}", names().collect::<Vec<_>>().join(", "));
    }
    format!("did you mean {}?", near.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Direction;
    use longhaul_units::{BitRate, Nanos};

    /// The papers' figures, and those of the three paths that are of none: RTT and bottleneck.
    #[test]
    fn presets_have_the_figures_of_their_papers() {
        let figures = [
            ("nlr-tiny", 16_000_000, 10_000),
            ("nlr-small", 74_600_000, 10_000),
            ("nlr-medium", 137_800_000, 10_000),
            ("nlr-large", 195_000_000, 10_000),
            ("datatag", 120_000_000, 10_000),
            ("datatag-2.5g", 120_000_000, 2_500),
            ("tokyo", 500_000_000, 9_280),
            ("amsterdam-sandiego", 184_000_071, 10_000),
            ("lan", 100_000, 10_000),
            ("two-clients", 10_000_000, 100),
            ("teragrid", 4_000_000, 30_000),
        ];
        assert_eq!(figures.map(|(name, ..)| name).to_vec(), list().iter().map(|p| p.name).collect::<Vec<_>>());
        for (name, rtt_ns, mbit) in figures {
            let spec = load(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.name, name);
            assert!(!spec.source.is_empty());
            assert_eq!(spec.round_trip(), Nanos(rtt_ns), "{name}");
            // Backward, Tokyo's hop of bunching has no rate of its own.
            for direction in Direction::BOTH {
                assert_eq!(spec.bottleneck(direction), Some(BitRate(mbit * 1_000_000)), "{name}");
            }
        }
    }

    #[test]
    fn one_way_figures() {
        for (name, us) in [("nlr-tiny", 8_000), ("nlr-small", 37_300), ("nlr-medium", 68_900), ("nlr-large", 97_500)] {
            let spec = load(name).unwrap();
            for direction in Direction::BOTH {
                assert_eq!(spec.one_way_delay(direction), Nanos::from_micros(us), "{name}");
            }
        }
    }

    /// 24 h of ping: a standard deviation of 8.450 µs for the RTT.
    #[test]
    fn jitter_of_both_directions_adds_up() {
        let spec = load("amsterdam-sandiego").unwrap();
        let variance: f64 = (spec.forward.iter().chain(&spec.backward))
            .filter_map(|hop| hop.jitter.as_ref())
            .map(|jitter| (jitter.stddev.0 as f64).powi(2))
            .sum();
        assert!((variance.sqrt() - 8_450.0).abs() < 1.0, "{}", variance.sqrt());
    }

    #[test]
    fn a_wrong_name_is_answered_by_near_ones() {
        let message = |name| load(name).unwrap_err().to_string();
        assert_eq!(message("nlr-smal"), "`nlr-smal`: neither a preset nor a file; did you mean nlr-small?");
        assert_eq!(message("datatag-2.5"), "`datatag-2.5`: neither a preset nor a file; did you mean datatag-2.5g?");
        assert!(message("").contains("presets are nlr-tiny"));
        assert!(message("no/such.toml").starts_with("no/such.toml: "));
        assert!(!message("a\nb\u{1b}").contains(['\n', '\u{1b}']));
    }
}
