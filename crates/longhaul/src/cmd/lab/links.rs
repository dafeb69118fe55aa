//! What each direction of each link of a lab does to packets now.

use std::fmt::Write;

use longhaul_path::spec::{Direction, HopSpec, Key, PathEnd, PathSpec};
use longhaul_units::Nanos;
use serde::Serialize;

/// Letters of a loss that a table has room for: a list may name millions of packets.
const LOSS_LETTERS: usize = 40;

/// One direction of a link, as it is now: with all changes by `lab set`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Link {
    /// Name of the hop, as in `hops` of the status: client.up (from the host to the path), client.down, forward.hop1, backward.hop1.
    name: String,
    /// Fixed delay, in nanoseconds. Another may hold for a time where the hop has `delay-steps`.
    delay_ns: u64,
    /// Rate, in bits a second at the layer that the hop says; null: no limit.
    #[cfg_attr(test, schemars(range(min = 1)))]
    rate_bps: Option<u64>,
    /// Which packets it loses, in the short text of path files, such as none, random(0.01%), every(30000).
    loss: String,
    /// Limit of its queue, in the short text of path files, such as 16MiB, 1000p, unlimited.
    queue: String,
    /// Other keys of path files that the hop has, such as jitter; `path` has their values.
    others: Vec<&'static str>,
}

impl Link {
    fn new(name: String, hop: &HopSpec) -> Self {
        let shown = [Key::Delay, Key::Rate, Key::Loss, Key::Queue];
        let others = Key::ALL.into_iter().filter(|key| !shown.contains(key) && key.is_set(hop));
        Self {
            name,
            delay_ns: hop.delay.0,
            rate_bps: hop.rate.map(|rate| rate.0),
            loss: hop.loss.to_string(),
            queue: hop.queue.to_string(),
            others: others.map(Key::name).collect(),
        }
    }
}

/// Each host's access hops, then the shared hops forward, then those backward.
pub(crate) fn links(path: &PathSpec) -> Vec<Link> {
    let mut links = Vec::new();
    for end in PathEnd::BOTH {
        for (index, name) in path.host_names(end).into_iter().enumerate() {
            let host = path.hosts(end).get(index).cloned().unwrap_or_default();
            let (rate, queue) = (path.access_rate(&host), host.queue);
            let hop = HopSpec { rate, queue, delay: host.delay, ..HopSpec::default() };
            links.extend(["up", "down"].map(|way| Link::new(format!("{name}.{way}"), &hop)));
        }
    }
    for direction in Direction::BOTH {
        let named = path.hop_names(direction).into_iter().zip(path.hops(direction));
        links.extend(named.map(|(name, hop)| Link::new(format!("{direction}.{name}"), hop)));
    }
    links
}

/// The links as a table.
pub(crate) fn text(links: &[Link]) -> String {
    let mut text = format!("{:<20} {:>12} {:>12} {:>12}  {}\n", "link now", "delay", "rate", "queue", "loss");
    for link in links {
        let rate = link.rate_bps.map_or_else(|| "-".into(), |rate| longhaul_units::BitRate(rate).to_string());
        let mut loss: String = link.loss.chars().take(LOSS_LETTERS).collect();
        if loss.len() < link.loss.len() {
            loss += "…";
        }
        let others = if link.others.is_empty() { String::new() } else { format!("; {}", link.others.join(", ")) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<20} {:>12} {rate:>12} {:>12}  {loss}{others}",
            link.name,
            Nanos(link.delay_ns),
            link.queue
        );
    }
    text
}
