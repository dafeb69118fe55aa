//! A mix as people read it.

use longhaul_mix::{EngineKind, MixAmount, MixResult};

/// What is about to be sent.
pub(crate) fn heading(mix: &str, link: &str, engine: EngineKind, amount: &MixAmount, seed: u64) -> String {
    let how = match engine {
        EngineKind::LiveFrames => "by XDP live frames",
        EngineKind::PacketSocket => "by a packet socket",
    };
    let rate = amount.packets_per_second.map_or("as fast as possible".to_owned(), |rate| format!("{rate:.0} frames/s"));
    format!("longhaul: mix {mix} through {link} {how}, {rate}, seed {seed}; Ctrl-C ends")
}

pub(crate) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// What was sent.
pub(crate) fn report(result: &MixResult) -> String {
    let mut text = format!(
        "{} frames in {:.3} s: {:.0} frames/s, {:.1} Mb/s of frames, {:.1} Mb/s on the wire{}\n\n{:<24} {:>8} {:>12} {:>8} {:>12}\n",
        result.sent_packets,
        result.duration_ns as f64 / 1e9,
        result.packets_per_second,
        result.l2_rate_bps as f64 / 1e6,
        result.l1_rate_bps as f64 / 1e6,
        if result.refused_packets > 0 { format!("; {} refused", result.refused_packets) } else { String::new() },
        "class",
        "weight %",
        "frames",
        "%",
        "bytes"
    );
    for class in &result.classes {
        text += &format!(
            "{:<24} {:>8.2} {:>12} {:>8.2} {:>12}\n",
            class.name.chars().take(24).collect::<String>(),
            100.0 * class.share,
            class.sent_packets,
            100.0 * class.sent_packets as f64 / result.sent_packets.max(1) as f64,
            class.sent_bytes
        );
    }
    if let Some(stream) = &result.stream {
        let numbered = match stream.numbered_packets {
            0 => String::new(),
            numbers => format!(", numbered 0 to {}", numbers - 1),
        };
        text += &format!("\nstream: {} datagrams sent{numbered}\n", stream.sent_packets);
    }
    text
}
