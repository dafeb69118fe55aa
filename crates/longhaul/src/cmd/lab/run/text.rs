//! An experiment as people read it.

use longhaul_path::spec::{Direction, PathSpec};
use longhaul_report::html::Host;
use longhaul_report::html::udp_loss::Run;
use longhaul_result::Caveat;
use longhaul_session::locate::Location;
use longhaul_session::result::UdpResult;
use longhaul_units::Bytes;
use serde_json::Value;

/// Places that have a column of their own in the table: those of the NLR Rings paper.
const COLUMNS: [(Location, &str); 3] = [
    (Location::Network, "network"),
    (Location::ReceiverRing, "receive ring"),
    (Location::ReceiverSocketBuffer, "socket buffer"),
];

/// What stands over the rows of a series.
pub(crate) fn heading(name: &str) -> String {
    let columns: String = COLUMNS.iter().map(|(_, title)| format!(" {title:>14}")).collect();
    let head = format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>8}{columns}",
        "offered", "sent", "received", "packets", "lost", "lost %"
    );
    format!("{name}\n{head}")
}

/// A test in a line. Rates are Mb/s of payload; each place has the packets that it lost.
pub(crate) fn row(run: &Run) -> String {
    let mbit = |bps: u64| format!("{:.1}", bps as f64 / 1e6);
    let Some(result) = &run.result else {
        let why = run.error.as_ref().map_or("", |error| &error.message);
        return format!("{:>9}  not measured: {why}", mbit(run.rate_bps));
    };
    let columns: String = COLUMNS.iter().map(|(location, _)| format!(" {:>14}", lost(result, *location))).collect();
    let others: String = (Location::ALL.into_iter())
        .filter(|location| COLUMNS.iter().all(|(known, _)| known != location) && lost(result, *location) > 0)
        .map(|location| format!("  {location} {}", lost(result, location)))
        .collect();
    format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>8.3}{columns}{others}",
        mbit(run.rate_bps),
        mbit(result.sent_rate_bps),
        mbit(result.received_rate_bps),
        result.sent_packets,
        result.lost_packets,
        result.lost_packets as f64 * 100.0 / result.sent_packets.max(1) as f64,
    )
}

fn lost(result: &UdpResult, location: Location) -> u64 {
    result.loss_by_location.get(&location).copied().unwrap_or(0)
}

/// The first caveat of each kind, with how many more there are: a terminal is no place for one of each test.
pub(crate) fn first_of_each_kind(caveats: &[Caveat]) -> Vec<Caveat> {
    let mut kinds: Vec<(Caveat, usize)> = Vec::new();
    for caveat in caveats {
        match kinds.iter_mut().find(|(first, _)| first.code == caveat.code) {
            Some((_, more)) => *more += 1,
            None => kinds.push((caveat.clone(), 0)),
        }
    }
    let said = |(mut first, more): (Caveat, usize)| {
        if more > 0 {
            first.message += &format!("; {more} more of this kind");
        }
        first
    };
    kinds.into_iter().map(said).collect()
}

/// A path in words.
pub(crate) fn path(path: &PathSpec) -> String {
    let rate = Direction::BOTH.into_iter().filter_map(|direction| path.bottleneck(direction)).min();
    let rate = rate.map_or_else(String::new, |rate| format!(", slowest hop {rate}"));
    format!("{}: {} round trip{rate}", path.name, path.round_trip())
}

/// What matters of the hosts, of their snapshots as `longhaul host --json` has them. What the other end did not say is left out.
pub(crate) fn hosts(snapshots: &Value) -> Vec<Host> {
    let host = |name: &str| {
        let snapshot = snapshots.get(name).filter(|snapshot| snapshot.is_object())?;
        Some(Host { name: name.to_owned(), facts: facts(snapshot) })
    };
    ["client", "server"].into_iter().filter_map(host).collect()
}

fn facts(snapshot: &Value) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_owned(), value)));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    fact("kernel", text(&snapshot["kernel"]["release"]).map(|release| format!("Linux {release}")));
    let cpus = snapshot["cpu"]["online_cpus"].as_array().map(Vec::len);
    let model = text(&snapshot["cpu"]["model"]).unwrap_or_default();
    fact("CPUs", cpus.map(|count| format!("{count} × {model}")));
    fact("machine", text(&snapshot["kernel"]["virtualization"]).map(|kind| format!("virtual ({kind})")));
    fact("clock", text(&snapshot["kernel"]["clocksource"]));
    let interfaces = snapshot["interfaces"].as_array();
    if let Some(link) = interfaces.and_then(|links| links.iter().find(|link| link["name"] != "lo")) {
        let name = text(&link["name"]).unwrap_or_default();
        let driver = text(&link["driver"]).unwrap_or_else(|| "unknown driver".into());
        fact("interface", Some(format!("{name}, {driver}, MTU {}", link["mtu_bytes"])));
        let offloads: Vec<String> =
            [("TSO", "tx-tcp-segmentation"), ("UDP GSO", "tx-udp-segmentation"), ("GRO", "rx-gro")]
                .into_iter()
                .filter_map(|(short, name)| {
                    let offload = link["offloads"].as_array()?.iter().find(|offload| offload["name"] == name)?;
                    Some(format!("{short} {}", if offload["active"].as_bool()? { "on" } else { "off" }))
                })
                .collect();
        fact("offloads", (!offloads.is_empty()).then(|| offloads.join(", ")));
    }
    for (key, bytes) in [
        ("net.core.rmem_max", true),
        ("net.core.rmem_default", true),
        ("net.core.wmem_max", true),
        ("net.core.netdev_max_backlog", false),
    ] {
        let value = snapshot["sysctls"][key].as_u64();
        fact(key, value.map(|value| if bytes { Bytes(value).to_string() } else { format!("{value} packets") }));
    }
    facts
}
