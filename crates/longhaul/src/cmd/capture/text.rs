//! The text and the caveats at the end of `longhaul capture`.

use crate::caveats;

use std::path::Path;

use longhaul_capture::Captured;
use longhaul_captures::ledger::DroppedAt;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::{Bytes, Nanos};

/// Gaps that the text shows.
const GAPS_SHOWN: usize = 10;

/// Reasons to doubt the result.
pub(crate) fn caveats(captured: &Captured) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut warn = |code: CaveatCode, message: String, remedy: &str| {
        caveats.push(Caveat::new(code, message, remedy));
    };
    let dropped = |place| captured.ledger.dropped_packets.get(&place).copied().unwrap_or(0);
    for (place, remedy) in [
        (DroppedAt::Nic, "give the NIC larger rings (ethtool -G) or more queues (ethtool -L)"),
        (DroppedAt::KernelRing, "use a larger --ring or a smaller --snap, or give longhaul a CPU of its own"),
        (DroppedAt::Writer, "write to a faster disk"),
    ] {
        if dropped(place) > 0 {
            warn(
                caveats::CAPTURE_DROPPED,
                format!("{} packets were dropped at {}", dropped(place), place.name()),
                remedy,
            );
        }
    }
    for link in &captured.loggers {
        let lost = link.ledger.dropped();
        if let Some(error) = &link.error {
            let rest = match lost {
                0 => "it wrote everything that it was sent".into(),
                lost => format!("{lost} packets that it was sent may be missing"),
            };
            let message = format!("logging host {}: {error}; {rest}", link.name);
            warn(caveats::LOGGER_LOST, message, &error.remedy);
        } else if lost > 0 {
            let message = format!("{lost} packets were lost or not written at logging host {}", link.name);
            warn(
                caveats::LOGGER_DROPPED,
                message,
                "use a faster link, CPU or disk there, or share the load among several --to",
            );
        }
    }
    if let Some(error) = &captured.disk_error {
        let packets = dropped(DroppedAt::Disk);
        warn(
            caveats::DISK,
            format!("{error}; {packets} packets were not written"),
            // Without files it was stdout.
            if captured.files.is_empty() { "" } else { "free space on the disk, or use --keep" },
        );
    }
    if captured.ledger.unaccounted_packets() != 0 {
        let message = format!("{} packets are not accounted for", captured.ledger.unaccounted_packets());
        warn(caveats::UNACCOUNTED, message, "report this as a bug of longhaul");
    }
    for refusal in &captured.nic_refusals {
        warn(caveats::NO_NIC_CLOCK, format!("{refusal}; its packets have time stamps of the kernel"), "");
    }
    for gone in &captured.gone {
        let after = gone.at_ns.saturating_sub(captured.meta.started_ns) as f64 / 1e9;
        let message = format!(
            "interface {} was removed {after:.1} s after the start: nothing later was captured on it",
            gone.interface
        );
        warn(caveats::INTERFACE_GONE, message, "capture again when it is back");
    }
    if captured.super_packets > 0 {
        let message = format!("{} of the packets are super-packets, which no wire carried", captured.super_packets);
        warn(caveats::SUPER_PACKETS, message, "turn offloads off (ethtool -K IF gro off tso off) to see wire packets");
    }
    caveats
}

/// The result as text; `into` is the file that was made of the spool, which is gone.
pub(crate) fn text(captured: &Captured, into: Option<&Path>, duration: Nanos) -> String {
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
    for place in DroppedAt::ALL {
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
        text += &format!("  … and {} more gaps\n", ledger.gaps.len() - GAPS_SHOWN);
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
        removed => format!(", {removed} older files removed"),
    };
    if let Some(file) = into {
        text += &format!("  in {}{removed}\n", file.display());
    } else if let Some(folder) = captured.files.first().and_then(|file| file.parent()) {
        let files = captured.files.len();
        let files = if files == 1 { "1 file".into() } else { format!("{files} files") };
        text += &format!("  {files} in {}{removed}\n", folder.display());
    }
    text
}
