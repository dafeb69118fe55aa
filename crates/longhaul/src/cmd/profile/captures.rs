//! Captures as measurements: of both ends of a path, packet by packet; of one end, TCP's round trips and losses.

use std::path::{Path, PathBuf};

use longhaul_captures::packet::within_times;
use longhaul_flows::compare::{Compared, PathDirection, Reached};
use longhaul_flows::{FlowSummary, Flows, Loss, Millisecond, Sink};
use longhaul_profile::{LossesSeen, Passage, Probe, Probes, probes_most};
use longhaul_units::Nanos;

use crate::captures::progress::pass_to;
use crate::captures::source::{Filter, Trace};
use crate::cmd::compare::matched::matched;
use crate::cmd::profile::measured::{Measured, bytes_of, name_of};
use crate::output::Failure;

/// Ethernet, IPv4, and TCP with time stamps or UDP.
const TCP_HEADERS: u32 = 14 + 20 + 32;
const UDP_HEADERS: u32 = 14 + 20 + 8;
/// IPv6's header is so much longer.
const IPV6_MORE: u32 = 20;
/// The IP protocol.
const TCP: u8 = 6;
/// Runs of losses that are kept of a capture at one end.
const RUNS_MOST: usize = 1 << 22;
/// A full segment of a path of 1,500 bytes.
const SEGMENT_FRAME: u32 = 1_514;

/// The packets of captures at the client's end of a path and at the server's.
pub(super) fn of_both_ends(near: &Path, far: &Path, same_clock: bool) -> Result<Measured, Failure> {
    let paths = [near.to_owned(), far.to_owned()];
    Trace::can_be_read_again(&paths, "a profile of two captures")?;
    let open = |path: &PathBuf| Trace::open(std::slice::from_ref(path), Filter::default());
    let (mut a, mut b) = (open(&paths[0])?, open(&paths[1])?);
    let mut ways = [Vec::new(), Vec::new()];
    let mut payloads: [Vec<(u32, u32)>; 2] = Default::default();
    let rows_most = probes_most(bytes_of(near).saturating_add(bytes_of(far))) / 2;
    // The others are for packets that were lost.
    let arrived_most = rows_most / 4 * 3;
    // When a direction had as many packets as are read.
    let mut full_ns: Option<i64> = None;
    let compared = matched([&paths[0], &paths[1]], same_clock, open, [&mut a, &mut b], |reached: &Reached| {
        let way = reached.direction as usize;
        let sent_ns = match reached.direction {
            PathDirection::AToB => reached.a_ns,
            PathDirection::BToA => within_times(reached.a_ns.saturating_sub(reached.delay_ns as i64)),
        };
        if ways[way].len() >= arrived_most {
            full_ns = Some(full_ns.map_or(sent_ns, |full| full.min(sent_ns)));
        }
        if full_ns.is_some_and(|full| sent_ns >= full) || ways[way].len() >= arrived_most {
            return;
        }
        ways[way].push(Passage { sent_ns, delay_ns: Some(reached.delay_ns), ..Passage::default() });
        payloads[way].push((reached.path, reached.payload_bytes));
    })?;
    let headers: Vec<u32> = (compared.paths.iter())
        .map(|path| {
            let ports = if path.protocol == TCP { TCP_HEADERS } else { UDP_HEADERS };
            ports + if path.src.0.is_ipv6() { IPV6_MORE } else { 0 }
        })
        .collect();
    let frame = |path: u32, payload: u32| headers.get(path as usize).copied().unwrap_or(TCP_HEADERS) + payload;
    for (way, payloads) in ways.iter_mut().zip(&payloads) {
        for (passage, (path, payload)) in way.iter_mut().zip(payloads) {
            passage.frame_bytes = frame(*path, *payload);
        }
    }
    drop(payloads);
    let mut notes = Vec::new();
    if let Some(full) = full_ns {
        let first = ways.iter().flatten().map(|passage| passage.sent_ns).min().unwrap_or(full);
        ways.iter_mut().for_each(|way| way.retain(|passage| passage.sent_ns < full));
        let read = Nanos(full.abs_diff(first));
        notes.push(format!("what passed later: the first {read} are read, {arrived_most} packets of a direction"));
    }
    add_lost(&compared, &frame, (full_ns.unwrap_or(i64::MAX), rows_most), &mut ways, &mut notes);
    let clocks = compared.clock.corrected.then_some(compared.clock);
    let mut probes = Probes::of_ways(ways, clocks);
    let [gaps_a, gaps_b] = compared.gaps;
    if gaps_a.0 + gaps_b.0 > 0 {
        notes.push("what passed while a capture dropped packets: that time is left out".into());
    }
    if compared.left_out_packets > 0 {
        let (packets, kept) = (compared.left_out_packets, compared.paths.len());
        notes.push(format!("{packets} packets of flows that came after the first {kept} directions"));
    }
    probes.notes = notes;
    let name = name_of(near);
    Ok(Measured { probes, source: format!("captures {name} and {}", name_of(far)), name })
}

/// The packets that were lost before `until_ns`, spread evenly over the time of their run; `rows_most` rows of each direction.
fn add_lost(
    compared: &Compared,
    frame: &dyn Fn(u32, u32) -> u32,
    (until_ns, rows_most): (i64, usize),
    ways: &mut [Vec<Passage>; 2],
    notes: &mut Vec<String>,
) {
    let mut left_out = 0;
    for between in &compared.directions {
        let way = between.direction as usize;
        for run in &between.lost {
            let by_a = |at_ns: i64| {
                if between.direction == PathDirection::AToB { at_ns } else { within_times(compared.clock.by_a(at_ns)) }
            };
            let (first, last) = (by_a(run.at_ns), by_a(run.last_at_ns));
            let packets = run.packets.min(rows_most as u64).max(1);
            let payload = (run.payload_bytes / run.packets.max(1)) as u32;
            let apart = last.saturating_sub(first).max(0) / (packets as i64 - 1).max(1);
            let room = rows_most.saturating_sub(ways[way].len());
            let sent = (0..packets as i64).map(|nth| first.saturating_add(nth.saturating_mul(apart)));
            let sent = sent.take_while(|sent_ns| *sent_ns < until_ns);
            left_out += sent.clone().count().saturating_sub(room);
            ways[way].extend(sent.take(room).map(|sent_ns| Passage {
                sent_ns,
                frame_bytes: frame(run.path, payload),
                ..Passage::default()
            }));
        }
        if between.loss_runs > between.lost.len() as u64 {
            let more = between.loss_runs - between.lost.len() as u64;
            notes.push(format!("{more} more runs of lost packets: the first {} are read", between.lost.len()));
        }
    }
    if left_out > 0 {
        notes.push(format!("{left_out} more lost packets: of both directions {rows_most} are read"));
    }
}

/// What TCP shows at one point: round trips from there to either end, and losses.
#[derive(Default)]
struct OneEnd {
    /// Round trips of each direction that are read.
    rows_most: usize,
    rtts: [Vec<Probe>; 2],
    runs: [Vec<(u64, u64)>; 2],
    first_ns: Option<i64>,
    last_ns: i64,
}

impl Sink for OneEnd {
    fn flow(&mut self, _: FlowSummary) {}

    fn millisecond(&mut self, _: u64, forward: bool, at_ns: i64, row: Millisecond) {
        self.first_ns.get_or_insert(at_ns);
        self.last_ns = self.last_ns.max(at_ns);
        let rtts = &mut self.rtts[usize::from(!forward)];
        if let Some(rtt) = row.rtt_ns.and_then(|rtt| u64::try_from(rtt).ok()).filter(|_| !row.in_gap)
            && rtts.len() < self.rows_most
        {
            let sent_ns = at_ns.saturating_sub_unsigned(rtt);
            rtts.push(Probe { sent_ns, rtt_ns: Some(rtt), resolution_ns: 1, ..Probe::default() });
        }
    }

    fn lost(&mut self, _: u64, forward: bool, loss: Loss) {
        let runs = &mut self.runs[usize::from(!forward)];
        if runs.len() < RUNS_MOST {
            runs.push((loss.after_packets, loss.packets));
        }
    }
}

/// Round trips and losses of the TCP flows in a capture at one end, by time stamps or acknowledgments.
pub(super) fn of_one_end(path: &Path) -> Result<Measured, Failure> {
    let mut trace = Trace::open(&[path.to_owned()], Filter::default())?;
    let rows_most = probes_most(bytes_of(path)) / 2;
    let mut flows = Flows::with_gaps(trace.flow_options(), OneEnd { rows_most, ..OneEnd::default() }, trace.gaps());
    pass_to(&mut trace, &mut flows)?;
    trace.was_readable()?;
    let found = flows.finish().0;
    let middle = |rtts: &Vec<Probe>| {
        let mut all: Vec<u64> = rtts.iter().filter_map(|row| row.rtt_ns).collect();
        let nth = all.len() / 2;
        if all.is_empty() { 0 } else { *all.select_nth_unstable(nth).1 }
    };
    let middles = found.rtts.each_ref().map(middle);
    // The path is where the round trips are: the other direction is that to the host of the capture.
    let way = usize::from(middles[1] > middles[0]);
    let other = middles[1 - way];
    let (mut rtts, mut runs) = (found.rtts, found.runs);
    let (mut rows, runs) = (std::mem::take(&mut rtts[way]), std::mem::take(&mut runs[way]));
    if rows.is_empty() {
        let failure = Failure::new("no_round_trips", format!("{}: no round trips of TCP", path.display()));
        return Err(failure.remedy("capture both directions of TCP, or give captures of both ends: profile NEAR FAR"));
    }
    rows.sort_by_key(|row| row.sent_ns);
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut notes = vec![
        "what the receiver took to acknowledge: delayed acknowledgments are part of the round trips".to_owned(),
        "how much of the delay is a queue that the captured flows filled themselves: all of it is written as the path's".into(),
        "reordering and duplicates".into(),
    ];
    if rows.len() >= rows_most {
        notes.push(format!("the round trips that followed: the first {rows_most} are read"));
    }
    if other * 20 > middles[way] {
        notes.push(format!("the part of the path beyond the capture point: its round trips are {:.3} ms", ms(other)));
    }
    let packets: u64 = runs.iter().map(|(passed, lost)| passed.saturating_add(*lost)).fold(0, u64::saturating_add);
    if runs.iter().any(|(_, lost)| *lost > 0) {
        notes.push(
            "when packets were lost: they are assumed evenly spaced, as TCP's numbers show only the order".into(),
        );
    }
    let lasted = found.last_ns.abs_diff(found.first_ns.unwrap_or(found.last_ns));
    let losses = Some(LossesSeen { runs, apart_ns: lasted / packets.max(1) });
    let name = name_of(path);
    let probes = Probes { rows, losses, frame_bytes: SEGMENT_FRAME, notes, ..Probes::default() };
    Ok(Measured { probes, source: format!("{name}, a capture of TCP at one end"), name })
}
