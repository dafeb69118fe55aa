//! The page of a saved UDP test: packets over time by when each stream began and ended, and by the losses, which the result lists or a table has.

use longhaul_report::html::over_time::udp::{Departures, Report};
use longhaul_report::parquet::read_losses;
use longhaul_report::saved::UdpAsked;
use longhaul_terms::{Directions, StreamSent};
use longhaul_udp::locate::Loss;
use longhaul_udp::{UdpResult, UdpStreamResult};

use crate::cmd::show::read::Read;

/// Results of older versions, and those of a server that was lost.
const NO_TIMES: &str = "the result does not say when packets left";
/// Streams of a direction: a loss has the number of its own in a byte.
const STREAMS_MOST: usize = 256;

pub(super) fn page(read: &Read<'_>, asked: &UdpAsked, results: &Directions<UdpResult>) -> String {
    let mut left_out = Vec::new();
    let mut over_time = |result: &UdpResult| {
        departures(read, result).unwrap_or_else(|why| {
            left_out.push(format!("Packets over time are left out: {why}"));
            None
        })
    };
    let client_sends = asked.udp.direction.client_sends();
    let departures = match results {
        Directions::One(result) if client_sends => [over_time(result), None],
        Directions::One(result) => [None, over_time(result)],
        Directions::Both { forward, backward } => [over_time(forward), over_time(backward)],
    };
    let tested = read.tested(&format!("UDP to {}", asked.host), left_out);
    Report { tested, results, payload_bytes: asked.udp.payload_bytes, departures, client_sends }.html()
}

/// Packets of a direction over time, as the command draws them; `None` where too few were sent.
///
/// # Errors
/// Why they are not known.
fn departures(read: &Read<'_>, result: &UdpResult) -> Result<Option<Departures>, String> {
    let sent = |stream: &UdpStreamResult| {
        let (first_sent_ns, last_sent_ns) = (stream.first_sent_ns?, stream.last_sent_ns?);
        Some(StreamSent { sent_packets: stream.sent_packets, sent_bytes: 0, first_sent_ns, last_sent_ns })
    };
    let streams: Option<Vec<StreamSent>> = result.streams.iter().take(STREAMS_MOST).map(sent).collect();
    let streams = streams.filter(|streams| !streams.is_empty()).ok_or(NO_TIMES)?;
    let Some(mut departures) = Departures::of(&streams) else { return Ok(None) };
    // A loss takes a step for each stretch of time that it lies in: all together have no more packets than were sent.
    let mut left: Vec<u64> = streams.iter().map(|stream| stream.sent_packets).collect();
    let mut lose = |loss: Loss| {
        if let Some(left) = left.get_mut(usize::from(loss.stream)) {
            let packets = loss.packets.min(*left);
            *left -= packets;
            departures.lose(&Loss { packets, ..loss });
        }
    };
    match &result.losses_file {
        Some(name) => read.table(name, |file| read_losses(file, lose))?,
        None if result.losses.is_empty() && result.lost_packets > 0 => {
            return Err("there are too many losses for the result to list them; -o DIR keeps all in a table".into());
        }
        None => result.losses.iter().cloned().for_each(&mut lose),
    }
    Ok(Some(departures))
}
