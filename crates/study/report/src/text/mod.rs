//! Results as text for a terminal.

pub mod analyze;
pub mod compare;
pub mod diagnose;
pub mod experiment;
pub mod hops;
pub mod long_path;
pub mod rtt;
pub mod sweep;
pub mod tcp;
pub mod udp;
pub mod verify;
pub mod watch;
pub mod watch_udp;

use std::str::FromStr;
use std::sync::OnceLock;

use longhaul_units::{BitRate, Nanos, without_controls};

use longhaul_terms::{Directions, Latency};

/// A time with three digits.
pub fn short(ns: u64) -> String {
    Nanos(ns).rounded()
}

/// The unit of all rates, as iperf3's `-f` has it: lower case are bits by thousands, upper case bytes by 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateUnit {
    per_second: f64,
    name: &'static str,
}

/// Set once, by who prints; unset, each rate has the unit of its size.
static RATE_UNIT: OnceLock<RateUnit> = OnceLock::new();

impl RateUnit {
    /// The units that there are, and their letters.
    const ALL: [(char, f64, &'static str); 8] = [
        ('k', 1e3, "kbit"),
        ('m', 1e6, "Mbit"),
        ('g', 1e9, "Gbit"),
        ('t', 1e12, "Tbit"),
        ('K', 8.0 * 1024.0, "KiB"),
        ('M', 8.0 * 1024.0 * 1024.0, "MiB"),
        ('G', 8.0 * 1024.0 * 1024.0 * 1024.0, "GiB"),
        ('T', 8.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0, "TiB"),
    ];

    /// Has all rates of this process written in this unit. The first call counts.
    pub fn use_for_all(self) {
        let _ = RATE_UNIT.set(self);
    }

    fn write(self, rate: BitRate) -> String {
        format!("{:.3} {}", rate.0 as f64 / self.per_second, self.name)
    }
}

impl FromStr for RateUnit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let is_meant = |unit: &&(char, f64, &str)| text.chars().eq([unit.0]);
        let found = Self::ALL.iter().find(is_meant).map(|(_, per_second, name)| Self { per_second: *per_second, name });
        found.ok_or_else(|| "k, m, g or t for bits per second, K, M, G or T for bytes per second".into())
    }
}

/// A rate with one decimal, or three for Gbit/s; in the unit that [`RateUnit::use_for_all`] set.
pub fn rate(rate: BitRate) -> String {
    if let Some(unit) = RATE_UNIT.get() {
        return unit.write(rate);
    }
    let bps = rate.0 as f64;
    match rate.0 {
        0..1_000_000 => format!("{:.1} kbit", bps / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit", bps / 1e6),
        _ => format!("{:.3} Gbit", bps / 1e9),
    }
}

/// Round trips beside a test, in words.
fn latency(latency: &Latency) -> String {
    let Latency { idle, loaded } = latency;
    if idle.answered == 0 || loaded.answered == 0 {
        return format!(
            "not known: {} of {} ICMP echoes were answered",
            idle.answered.saturating_add(loaded.answered),
            idle.probes.saturating_add(loaded.probes)
        );
    }
    let lost = match loaded.probes - loaded.answered.min(loaded.probes) {
        0 => String::new(),
        lost => format!("; {lost} of {} lost", loaded.probes),
    };
    let [idle, p50, p99, max] = [idle.p50_ns, loaded.p50_ns, loaded.p99_ns, loaded.max_ns].map(short);
    format!("{idle} p50 idle; under load {p50} p50, {p99} p99, {max} max{lost}")
}

/// Letters of a column of a table at most.
const COLUMN_LETTERS_MOST: usize = 1000;

/// How many letters wide a column of `cells` is: as its longest cell, but 1000 at most. A longer cell stands out of its column: saved results may have any,
/// and no format is wider than 65,535 letters (it panics).
pub(crate) fn column_width<'a>(cells: impl IntoIterator<Item = &'a str>) -> usize {
    let letters = cells.into_iter().map(|cell| cell.chars().take(COLUMN_LETTERS_MOST).count());
    letters.max().unwrap_or_default()
}

/// The text of each direction, as `one` makes it from the direction's name and result. `client_sends` gives the name of a single direction.
fn each_direction<R>(results: &Directions<R>, client_sends: bool, one: impl Fn(&str, &R) -> String) -> String {
    let text = match results {
        Directions::One(result) => one(if client_sends { "forward" } else { "backward" }, result),
        Directions::Both { forward, backward } => one("forward", forward) + "\n" + &one("backward", backward),
    };
    visible(&text)
}

/// `text` without letters that a terminal obeys: saved results and program names may hold any.
fn visible(text: &str) -> String {
    without_controls(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_iperfs() {
        let write = |letter: &str| letter.parse::<RateUnit>().unwrap().write(BitRate(8_388_608_000));
        assert_eq!(["k", "g", "M", "G"].map(write), ["8388608.000 kbit", "8.389 Gbit", "1000.000 MiB", "0.977 GiB"]);
        assert!(["", "kk", "x", "Kb"].iter().all(|wrong| wrong.parse::<RateUnit>().is_err()));
    }

    #[test]
    fn times_have_three_digits() {
        let times = [0, 999, 1_000, 12_345, 231_680, 1_999_799_011, 37_300_000_000].map(short);
        assert_eq!(times, ["0ns", "999ns", "1.00us", "12.3us", "232us", "2.00s", "37.3s"]);
    }
}
