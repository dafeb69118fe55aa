//! A filter's status in Prometheus' text format.
//!
//! Source: Prometheus, "Exposition formats", text-based format 0.0.4.

use std::fmt::Write;

use longhaul_bpf::filter::{Cast, Class, Reason, SizeRange};
use longhaul_filter::FilterStatus;
use longhaul_units::is_obeyed;

/// Counters by protocol, destination and verdict; by size; by reason. The sizes are no Prometheus histogram: their ranges are those
/// of RFC 2819, and each frame is in one.
pub(crate) fn text(status: &FilterStatus) -> String {
    let counters = &status.counters;
    let interface = escaped(&status.interface);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut family = |name: &str, kind: &str, help: &str, rows: Vec<(String, u64)>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = writeln!(text, "{name}{{interface=\"{interface}\"{comma}{labels}}} {value}");
        }
    };
    for (unit, of) in [("packets", 0), ("bytes", 1)] {
        let pick = |tally: longhaul_bpf::filter::Tally| if of == 0 { tally.packets } else { tally.bytes };
        let protocols = Class::ALL.iter().flat_map(|class| {
            Cast::ALL.iter().flat_map(move |cast| {
                let verdicts = counters.protocol(*class, *cast);
                [("accepted", verdicts.accepted), ("rejected", verdicts.rejected)].map(|(verdict, tally)| {
                    let labels =
                        format!("protocol=\"{}\",cast=\"{}\",verdict=\"{verdict}\"", class.name(), cast.name());
                    (labels, pick(tally))
                })
            })
        });
        family(
            &format!("longhaul_filter_{unit}_total"),
            "counter",
            &format!("Received frames, in {unit}; bytes without FCS."),
            protocols.collect(),
        );
        let sizes = SizeRange::ALL.iter().enumerate().flat_map(|(index, range)| {
            let most = range.most_bytes.map_or("+Inf".to_owned(), |most| most.to_string());
            let verdicts = counters.size(index);
            [("accepted", verdicts.accepted), ("rejected", verdicts.rejected)].map(|(verdict, tally)| {
                (
                    format!("least_bytes=\"{}\",most_bytes=\"{most}\",verdict=\"{verdict}\"", range.least_bytes),
                    pick(tally),
                )
            })
        });
        family(
            &format!("longhaul_filter_size_{unit}_total"),
            "counter",
            &format!("Frames by their length on the wire, FCS included, in {unit}."),
            sizes.collect(),
        );
        let reasons = Reason::ALL.iter().map(|reason| {
            let verdict = if reason.rejects() { "rejected" } else { "accepted" };
            (format!("reason=\"{}\",verdict=\"{verdict}\"", reason.name()), pick(counters.reason(*reason)))
        });
        family(
            &format!("longhaul_filter_reason_{unit}_total"),
            "counter",
            &format!("Frames by the reason to accept or reject them, in {unit}."),
            reasons.collect(),
        );
    }
    let one = |value: u64| vec![(String::new(), value)];
    family(
        "longhaul_filter_dropped_packets_total",
        "counter",
        "Rejected frames that the filter dropped.",
        one(counters.dropped_packets),
    );
    family(
        "longhaul_filter_samples_lost_total",
        "counter",
        "Samples of rejected frames that nobody read in time.",
        one(counters.lost_samples),
    );
    family(
        "longhaul_filter_enforces",
        "gauge",
        "1 while the filter drops rejected frames.",
        one(status.enforces.into()),
    );
    family(
        "longhaul_filter_addresses_current",
        "gauge",
        "0 while the addresses of the filter are old: it passes what it would reject by address.",
        one(status.addresses_current.into()),
    );
    family(
        "longhaul_filter_timestamp_seconds",
        "gauge",
        "When these figures were read, in seconds since 1970.",
        one(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()),
    );
    text
}

/// A label's value.
fn escaped(text: &str) -> String {
    let shown = text.replace(is_obeyed, "?");
    shown.replace('\\', r"\\").replace('"', "\\\"")
}
