//! A filter's status as people read it.

use std::fmt::Write;

use longhaul_bpf::filter::{Cast, Class, FilterCounters, Reason, SizeRange, Tally, Verdicts};
use longhaul_filter::FilterStatus;
use longhaul_units::{Bytes, Nanos};

/// What the filter does, and tables of what it counted; with the counters of some time `before`, also frames a second.
pub(crate) fn text(status: &FilterStatus, before: Option<(&FilterCounters, Nanos)>) -> String {
    let counters = &status.counters;
    let all = counters.total();
    let mut text = String::new();
    let does = match (status.enforces, status.reverts_in_ns.map(Nanos)) {
        (false, _) => "counts".to_owned(),
        (true, None) => "drops what it rejects".into(),
        (true, Some(time)) => {
            format!("drops what it rejects; only counts in {:.1} s unless confirmed", time.as_secs_f64())
        }
    };
    let kept = if status.kept { ", stays until detached" } else { "" };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {} XDP, {does}{kept}", status.interface, status.mode);
    let _ = writeln!(
        text,
        "{} frames, {} accepted, {} rejected, {} of them dropped",
        all.all().packets,
        all.accepted.packets,
        all.rejected.packets,
        counters.dropped_packets
    );
    if let Some((before, time)) = before {
        let since = |now: Tally, was: Tally| now.packets.saturating_sub(was.packets) as f64 / time.as_secs_f64();
        let was = before.total();
        let (accepted, rejected) = (since(all.accepted, was.accepted), since(all.rejected, was.rejected));
        let _ = writeln!(text, "now {:.0}/s, {accepted:.0}/s accepted, {rejected:.0}/s rejected", accepted + rejected);
    }
    let rate = |now: Tally, was: fn(&FilterCounters, usize) -> Tally, index: usize| match before {
        Some((before, time)) if time.0 > 0 => {
            let packets = now.packets.saturating_sub(was(before, index).packets);
            format!(" {:>10}/s", (packets as f64 * 1e9 / time.0 as f64).round())
        }
        _ => String::new(),
    };
    let whole = all.all().packets;

    let _ = writeln!(
        text,
        "\n{:<16} {:>13} {:>7} {:>13} {:>13} {:>13} {:>13}",
        "protocol", "frames", "%", "unicast", "multicast", "broadcast", "rejected"
    );
    for (index, class) in Class::ALL.iter().enumerate() {
        let sum = counters.class(*class);
        if sum.all().packets == 0 {
            continue;
        }
        let of = |cast| counters.protocol(*class, cast).all().packets;
        let _ = writeln!(
            text,
            "{:<16} {:>13} {:>7.1} {:>13} {:>13} {:>13} {:>13}{}",
            class.title(),
            sum.all().packets,
            percent(sum.all().packets, whole),
            of(Cast::Unicast),
            of(Cast::Multicast),
            of(Cast::Broadcast),
            sum.rejected.packets,
            rate(sum.all(), |before, index| before.class(Class::ALL[index]).all(), index),
        );
    }
    let _ = writeln!(text, "\n{:<16} {:>13} {:>7} {:>13} {:>13}", "sent to", "frames", "%", "accepted", "rejected");
    for cast in Cast::ALL {
        let _ = writeln!(text, "{}", verdicts(cast.name(), counters.cast(cast), whole));
    }
    let _ = writeln!(
        text,
        "\n{:<16} {:>13} {:>7} {:>13} {:>13}",
        "bytes on the wire", "frames", "%", "accepted", "rejected"
    );
    for (index, range) in SizeRange::ALL.iter().enumerate() {
        let name = match range.most_bytes {
            Some(most) => format!("{}–{most}", range.least_bytes),
            None => format!("{} and more", range.least_bytes),
        };
        let _ = writeln!(text, "{}", verdicts(&name, counters.size(index), whole));
    }
    for rejects in [false, true] {
        let title = if rejects { "rejected" } else { "accepted" };
        let _ = writeln!(text, "\n{title:<25} {:>13} {:>10}", "frames", "bytes");
        for (index, reason) in Reason::ALL.iter().enumerate().filter(|(_, reason)| reason.rejects() == rejects) {
            let tally = counters.reason(*reason);
            if tally.packets == 0 {
                continue;
            }
            let _ = writeln!(
                text,
                "{:<25} {:>13} {:>10}{}  {}",
                reason.name(),
                tally.packets,
                Bytes(tally.bytes).rounded(),
                rate(tally, |before, index| before.reason(Reason::ALL[index]), index),
                reason.meaning(),
            );
        }
    }
    text
}

fn verdicts(name: &str, verdicts: Verdicts, whole: u64) -> String {
    format!(
        "{name:<16} {:>13} {:>7.1} {:>13} {:>13}",
        verdicts.all().packets,
        percent(verdicts.all().packets, whole),
        verdicts.accepted.packets,
        verdicts.rejected.packets
    )
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
