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

use longhaul_units::{BitRate, Nanos};

use longhaul_terms::Directions;

/// A time with three digits.
pub fn short(ns: u64) -> String {
    Nanos(ns).rounded()
}

/// A rate with one decimal, or three for Gbit/s.
pub fn rate(rate: BitRate) -> String {
    let bps = rate.0 as f64;
    match rate.0 {
        0..1_000_000 => format!("{:.1} kbit", bps / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit", bps / 1e6),
        _ => format!("{:.3} Gbit", bps / 1e9),
    }
}

/// The text of each direction, as `one` makes it from the direction's name and result. `client_sends` gives the name of a single direction.
fn each_direction<R>(results: &Directions<R>, client_sends: bool, one: impl Fn(&str, &R) -> String) -> String {
    let text = match results {
        Directions::One(result) => one(if client_sends { "forward" } else { "backward" }, result),
        Directions::Both { forward, backward } => one("forward", forward) + "\n" + &one("backward", backward),
    };
    visible(&text)
}

/// `text` without control characters, which would act on the terminal: saved results and program names may hold any.
fn visible(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 999, 1_000, 12_345, 231_680, 1_999_799_011, 37_300_000_000].map(short);
        assert_eq!(times, ["0ns", "999ns", "1.00us", "12.3us", "232us", "2.00s", "37.3s"]);
    }
}
