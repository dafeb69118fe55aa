//! What `longhaul capture` says at its end.

use std::io::IsTerminal;

use longhaul_capture::{Captured, LinkEnd};
use longhaul_result::Caveat;
use longhaul_trace::ledger::{Ledger, Place};
use longhaul_units::{Bytes, Nanos};
use serde_json::json;

/// Gaps that the text shows.
const GAPS_SHOWN: usize = 10;

/// Drops by place, every place named.
pub(crate) fn by_place(ledger: &Ledger) -> serde_json::Value {
    let of = |place| ledger.dropped_packets.get(&place).copied().unwrap_or(0);
    Place::ALL
        .iter()
        .map(|place| (place.name().to_owned(), of(*place).into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What came of a capture, as JSON.
pub(crate) fn result(captured: &Captured, duration: Nanos) -> serde_json::Value {
    json!({
        "duration_ns": duration.0,
        "interfaces": captured.meta.interfaces,
        "seen_packets": captured.ledger.seen_packets,
        "written_packets": captured.ledger.written_packets,
        "dropped_packets": captured.ledger.dropped(),
        "dropped_by_place": by_place(&captured.ledger),
        "unaccounted_packets": captured.ledger.unaccounted_packets(),
        "gaps": captured.ledger.gaps,
        "super_packets": captured.super_packets,
        "frame_bytes": captured.frame_bytes,
        "written_bytes": captured.written_bytes,
        "files": captured.files,
        "files_removed": captured.files_removed,
        "marks": captured.marks,
        "cpu_ns": captured.cpu.0,
        "loggers": captured.loggers.iter().map(logger).collect::<Vec<_>>(),
    })
}

fn logger(link: &LinkEnd) -> serde_json::Value {
    json!({
        "name": link.name,
        "address": link.address.to_string(),
        "datagram_bytes": link.datagram_bytes,
        "sent_datagrams": link.datagrams,
        "lost_datagrams": link.progress.lost_datagrams,
        "refused_datagrams": link.refused_datagrams,
        "sent_packets": link.packets,
        "written_packets": link.ledger.written_packets,
        "dropped_by_place": by_place(&link.ledger),
        "written_bytes": link.progress.written_bytes,
        "error": link.error.as_ref().map(|error| json!({ "code": error.code, "message": error.message })),
    })
}

/// What speaks against trusting it.
pub(crate) fn caveats(captured: &Captured) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut warn = |code: &str, message: String, remedy: &str| {
        caveats.push(Caveat { code: code.into(), message, remedy: remedy.into() });
    };
    let dropped = |place| captured.ledger.dropped_packets.get(&place).copied().unwrap_or(0);
    for (place, remedy) in [
        (Place::Nic, "give the NIC more descriptors (ethtool -G), or spread its queues"),
        (Place::KernelRing, "give it a larger --ring, a smaller --snap, or a CPU of its own"),
        (Place::Writer, "write to a faster disk"),
    ] {
        if dropped(place) > 0 {
            warn("packets_dropped", format!("{} packets were dropped at {}", dropped(place), place.name()), remedy);
        }
    }
    for link in &captured.loggers {
        let lost = link.ledger.dropped();
        if let Some(error) = &link.error {
            let rest = match lost {
                0 => "it wrote all that it had been sent".into(),
                lost => format!("{lost} packets that it had been sent may be missing"),
            };
            let message = format!("logging host {}: {error}; {rest}", link.name);
            warn("logger_lost", message, &error.remedy);
        } else if lost > 0 {
            let message = format!("{lost} packets did not come to rest at logging host {}", link.name);
            warn(
                "logger_dropped",
                message,
                "give it a faster link, a CPU and a disk that keep up, or share the load among several --to",
            );
        }
    }
    if let Some(error) = &captured.disk_error {
        let packets = dropped(Place::Disk);
        warn("disk", format!("{error}; {packets} packets were not written"), "make room, or use --keep");
    }
    if captured.ledger.unaccounted_packets() != 0 {
        let message = format!("{} packets are not accounted for", captured.ledger.unaccounted_packets());
        warn("unaccounted", message, "report this as an error of longhaul");
    }
    for refusal in &captured.nic_refusals {
        warn("no_nic_clock", format!("{refusal}; its packets have the kernel's stamps"), "");
    }
    if captured.super_packets > 0 {
        let message =
            format!("{} of the packets are super-packets, which were never on a wire", captured.super_packets);
        warn("super_packets", message, "turn offloads off (ethtool -K IF gro off tso off) to see wire packets");
    }
    caveats
}

/// The same for people.
pub(crate) fn text(captured: &Captured, duration: Nanos) -> String {
    let ledger = &captured.ledger;
    let seconds = duration.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{} packets in {:.1} s ({:.0} a second), {} of frames\n\n  seen      {:>14}\n  written   {:>14}  {}\n",
        captured.read_packets,
        seconds,
        captured.read_packets as f64 / seconds,
        Bytes(captured.frame_bytes).rounded(),
        ledger.seen_packets,
        ledger.written_packets,
        Bytes(captured.written_bytes).rounded(),
    );
    for place in Place::ALL {
        let packets = ledger.dropped_packets.get(&place).copied().unwrap_or(0);
        if packets > 0 {
            text += &format!("  dropped   {packets:>14}  at {}\n", place.name());
        }
    }
    let began_ns = captured.meta.started_ns;
    let since = |at_ns: i64| at_ns.saturating_sub(began_ns) as f64 / 1e9;
    for gap in ledger.gaps.iter().take(GAPS_SHOWN) {
        text += &format!(
            "  gap       {:>14}  at {}, from {:.3} to {:.3} s\n",
            gap.packets,
            gap.place.name(),
            since(gap.from_ns),
            since(gap.to_ns)
        );
    }
    if ledger.gaps.len() > GAPS_SHOWN {
        text += &format!("  … and {} gaps more\n", ledger.gaps.len() - GAPS_SHOWN);
    }
    for mark in &captured.marks {
        text += &format!("  mark {}    at {:.3} s\n", mark.number, since(mark.at_ns));
    }
    for link in &captured.loggers {
        let ledger = &link.ledger;
        let rest = match ledger.dropped() {
            0 => String::new(),
            dropped => format!(", {dropped} lost or not written there"),
        };
        text += &format!(
            "  to {}: {} packets in {} datagrams of up to {} B{rest}\n",
            link.name, link.packets, link.datagrams, link.datagram_bytes
        );
    }
    let removed = match captured.files_removed {
        0 => String::new(),
        removed => format!(", {removed} older ones removed"),
    };
    if let Some(folder) = captured.files.first().and_then(|file| file.parent()) {
        let files = captured.files.len();
        let files = if files == 1 { "1 file".into() } else { format!("{files} files") };
        text += &format!("  {files} in {}{removed}\n", folder.display());
    }
    if std::io::stdout().is_terminal() { text } else { text.replace('…', "...") }
}
