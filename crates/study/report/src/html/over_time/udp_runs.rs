//! UDP runs of an experiment over time: the rate that arrived and the share that was lost of several runs on one axis, and where each lost
//! packets.

use std::collections::BTreeMap;

use longhaul_result::Location;
use serde::{Deserialize, Serialize};

use crate::html::axis::RATES;
use crate::html::colour::fill;
use crate::html::lines::{Panel, Part, Stack};
use crate::html::over_time::runs::{Detail, Windows};
use crate::html::over_time::sampled::{COLOURS, PACKETS, SHARE};
use crate::html::over_time::timeline;

/// What a UDP run did over time, in at most 200 windows: packets by when they left. Time counts from the first departure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UdpOverTime {
    /// How long each window is.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub window_ns: u64,
    /// When the last packet left, and the last window ends.
    pub end_ns: u64,
    /// Packets that left in each window.
    pub sent_packets: Vec<u64>,
    /// Those of them that were lost, by location; locations without losses are left out.
    pub lost_packets: BTreeMap<Location, Vec<u64>>,
}

/// A run with its name and the payload of each packet.
#[derive(Debug, Clone)]
pub(crate) struct Named<'a> {
    pub(crate) name: String,
    pub(crate) payload_bytes: u32,
    pub(crate) run: &'a UdpOverTime,
}

impl UdpOverTime {
    fn windows(&self, most: usize) -> Windows {
        let lists = std::iter::once(&self.sent_packets).chain(self.lost_packets.values());
        Windows::of(self.window_ns, self.end_ns, lists.map(Vec::len), most)
    }

    /// Lost in each window, wherever.
    fn lost(&self) -> Vec<u64> {
        let lost_in = |window: usize| {
            let of_places = self.lost_packets.values().filter_map(|lost| lost.get(window));
            of_places.copied().fold(0, u64::saturating_add)
        };
        (0..self.sent_packets.len()).map(lost_in).collect()
    }

    fn received(&self) -> Vec<u64> {
        self.sent_packets.iter().zip(self.lost()).map(|(sent, lost)| sent.saturating_sub(lost)).collect()
    }

    /// Percent of what left in each window.
    fn lost_percent(&self, most: usize) -> Vec<f64> {
        let windows = self.windows(most);
        let (sent, lost) = (windows.sums(&self.sent_packets), windows.sums(&self.lost()));
        sent.iter().zip(lost).map(|(sent, lost)| lost * 100.0 / sent.max(1.0)).collect()
    }
}

/// The figures of at most [`AT_ONCE`](super::runs::AT_ONCE) runs.
pub(crate) fn figures(runs: &[Named<'_>], detail: Detail) -> String {
    let most = detail.most;
    let end_s = runs.iter().map(|named| named.run.end_ns as f64 / 1e9).fold(0.0, f64::max);
    let since = "the first departure";
    let panel = |title, what, units| Panel { title, what, units, end_s, since, ..Panel::default() };
    let lines = |values: &dyn Fn(&Named<'_>, &Windows) -> Vec<f64>| {
        let mut lines = Vec::new();
        for (named, colour) in runs.iter().zip(COLOURS) {
            let windows = named.run.windows(most);
            lines.push(windows.line(&named.name, colour, &values(named, &windows)));
        }
        lines
    };
    let bits = |named: &Named<'_>, windows: &Windows| {
        windows.rates(&named.run.received(), f64::from(named.payload_bytes) * 8.0)
    };
    let received = Panel { steps: true, lines: lines(&bits), ..panel("Received", "payload, ", &RATES[..]) };
    let lossy = || runs.iter().filter(|named| !named.run.lost_packets.is_empty());
    let share = Panel {
        steps: true,
        lines: lines(&|named, _| named.run.lost_percent(most)),
        ..panel("Share lost", "of packets sent, ", &SHARE)
    };
    let titles: Vec<String> = lossy().map(|named| format!("Packets lost, by location: {}", named.name)).collect();
    let names: Vec<Vec<String>> = lossy()
        .map(|named| named.run.lost_packets.keys().map(|location| location.name().replace('_', " ")).collect())
        .collect();
    let places = lossy().zip(&titles).zip(&names).filter(|_| detail.has_own).map(|((named, title), names)| {
        let windows = named.run.windows(most);
        let parts = named.run.lost_packets.iter().zip(names).map(|((location, lost), name)| Part {
            name,
            colour: fill(*location).hex().into(),
            faint: fill(*location).hatched,
            values: windows.sums(lost),
        });
        let stack = Some(Stack { step_s: windows.step_s, parts: parts.collect() });
        (Panel { stack, ..panel(title, "", &PACKETS) }, "")
    });
    let shared =
        [Some((received, "What arrived of the packets that left in that time.")), lossy().next().map(|_| (share, ""))];
    timeline(shared.into_iter().flatten().chain(places))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A second of 1,000 packets in windows of 10 ms, of which `lost` were lost in the network in the first window.
    pub(crate) fn run(lost: u64) -> UdpOverTime {
        let mut in_network = vec![0; 100];
        in_network[0] = lost;
        let lost_packets = if lost > 0 { [(Location::Network, in_network)].into() } else { BTreeMap::new() };
        UdpOverTime { window_ns: 10_000_000, end_ns: 1_000_000_000, sent_packets: vec![10; 100], lost_packets }
    }

    fn named<'a>(name: &str, run: &'a UdpOverTime) -> Named<'a> {
        Named { name: name.into(), payload_bytes: 1_250, run }
    }

    #[test]
    fn runs_are_lines_of_one_figure_and_those_with_losses_have_their_places() {
        let (none, some) = (run(0), run(5));
        let html = figures(&[named("10 Mb/s", &none), named("<20>", &some)], Detail::ALL[0]);
        assert_eq!(html.matches("<figure").count(), 3, "{html}");
        assert!(html.contains("data-figure=\"Packets lost, by location: &lt;20&gt;\"") && !html.contains("<20>"));
        let data = |number: usize| -> serde_json::Value {
            let part = html.split("application/json\">").nth(number).unwrap();
            serde_json::from_str(part.split_once("</script>").unwrap().0).unwrap()
        };
        let received = data(1);
        assert_eq!(
            (&received["lines"][0]["values"][0], &received["lines"][1]["values"][0]),
            (&10e6.into(), &5e6.into())
        );
        assert_eq!(data(2)["lines"][1]["values"][0], 50.0);
        let lost: f64 = data(3)["stack"]["parts"][0]["values"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(serde_json::Value::as_f64)
            .sum();
        assert_eq!(lost, 5.0);
        // No packet is lost from a coarser figure.
        let coarse = figures(&[named("x", &some)], Detail { most: 7, ..Detail::ALL[0] });
        assert!(coarse.contains("\"values\":[5.0,0.0"), "{coarse}");
        assert_eq!(figures(&[named("x", &none)], Detail::ALL[0]).matches("<figure").count(), 1);
        // A result that others made.
        let long = UdpOverTime { lost_packets: [(Location::Network, vec![1; 100_000])].into(), ..run(0) };
        let html = figures(&[named("x", &long)], Detail::ALL[0]);
        assert!(html.len() < 100_000, "{}", html.len());
    }
}
