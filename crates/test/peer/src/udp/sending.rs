//! The thread that sends one stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{SendBatch, UdpSendError, UdpSender, Unsent};
use longhaul_result::Location;
use longhaul_terms::{Amount, StreamSent, ThreadCpu};
use longhaul_udp::account::SpacingRecorder;
use longhaul_udp::locate::EvidenceRecorder;
use longhaul_udp::{Pace as AskedPace, UdpParameters};
use longhaul_units::pacer::{Pace, Pacer};
use longhaul_units::{Nanos, TimeHistogram};
use longhaul_wire::probe::{Cookie, Probe};

use crate::cpu_use::ThreadWatch;
use crate::waking::{EARLY_MOST, Waking};

/// Datagrams in one call at most.
const BATCH_MOST: usize = 128;
/// Sends in a row that must find a datagram too long until it is so: who forges ICMP messages does not end a stream.
const TOO_LONG_MOST: u32 = 100;

/// What the sender of a stream did.
#[derive(Debug, Default)]
pub(super) struct StreamOut {
    pub(super) sent: StreamSent,
    /// Packets that the kernel took: not what it refused, and what the way out dropped and said so.
    pub(super) taken_packets: u64,
    /// In how many pieces it took them: a super-packet is one.
    pub(super) taken_units: u64,
    pub(super) spacing: SpacingRecorder,
    /// Time that each packet took in calls that sent several one by one.
    pub(super) back_to_back: TimeHistogram,
    /// Packets that the kernel refused, and why.
    pub(super) evidence: EvidenceRecorder,
    /// Packets of a batch that it refused without a reason.
    pub(super) refused: EvidenceRecorder,
    /// Time by which the schedule was delayed, as the sender could not keep up.
    pub(super) given_up: Nanos,
    /// What the thread used of its CPU.
    pub(super) cpu: Option<ThreadCpu>,
    /// Why it ended early.
    pub(super) failure: Option<String>,
}

/// Sends as `parameters` say until they are met or `stop` is set.
pub(super) fn send_stream(
    socket: &UdpSender,
    parameters: &UdpParameters,
    cookie: Cookie,
    stop: &Arc<AtomicBool>,
) -> StreamOut {
    let stream = cookie.stream();
    let bytes = parameters.payload_bytes as usize;
    let together = if parameters.wire { 32 } else { socket.segments_most(bytes) };
    let mut batch = SendBatch::new(together.min(BATCH_MOST), bytes);
    let cpu = ThreadWatch::start();
    let start = monotonic();
    let burst = parameters.burst_packets;
    let most = batch.datagrams() as u32;
    let mut pacer = match parameters.pace {
        AskedPace::SpacingNs(gap) => Pacer::with_gap(start, gap.saturating_mul(1000), burst, most),
        AskedPace::RateBps(rate) => Pacer::with_rate(start, Some(rate), parameters.payload_bytes, burst, most),
        AskedPace::Unlimited => Pacer::with_rate(start, None, parameters.payload_bytes, burst, most),
    };
    let end = match parameters.amount {
        Amount::DurationNs(duration) => start.saturating_add(Nanos(duration)),
        Amount::Bytes(_) | Amount::Packets(_) => Nanos::MAX,
    };
    let total = parameters.packets_of_stream(stream).unwrap_or(u64::MAX);
    let mut out = StreamOut::default();
    // Until the kernel refuses to cut what is sent together, if at all.
    let mut singly = parameters.wire;
    let mut waking = Waking::new(if parameters.no_spin { Nanos::ZERO } else { EARLY_MOST });
    let mut sequence = 0;
    while sequence < total && !stop.load(Ordering::Relaxed) {
        let now = monotonic();
        if now >= end {
            break;
        }
        let count = match pacer.poll(now) {
            Pace::Wait(until) => {
                waking.wait(until.min(end));
                continue;
            }
            Pace::Send(count) => u64::from(count).min(total - sequence) as usize,
        };
        let taken = send_burst(socket, &mut batch, count, cookie, &mut singly, sequence, &mut out);
        if taken > 0 {
            out.spacing.record(now, taken as u32);
            sequence += taken as u64;
        }
        if out.failure.is_some() {
            break;
        }
        pacer.learn(monotonic().saturating_sub(now));
    }
    let (first, last) = out.spacing.span().unwrap_or_default();
    out.sent = StreamSent { sent_packets: sequence, first_sent_ns: first.0, last_sent_ns: last.0, sent_bytes: 0 };
    out.given_up = pacer.given_up();
    out.cpu = Some(cpu.used());
    out
}

/// Sends `count` packets back to back, in as many calls as they take. The first has number `sequence`. Returns how many were sent or
/// dropped.
fn send_burst(
    socket: &UdpSender,
    batch: &mut SendBatch,
    count: usize,
    cookie: Cookie,
    singly: &mut bool,
    sequence: u64,
    out: &mut StreamOut,
) -> usize {
    let mut done = 0;
    while done < count && out.failure.is_none() {
        let part = (count - done).min(batch.datagrams());
        let (first, now) = (sequence + done as u64, monotonic());
        for (i, datagram) in batch.datagrams_mut().take(part).enumerate() {
            // A payload is at least as long as the header: the parameters were checked.
            let _ = Probe { cookie, sequence: first + i as u64, sent_ns: now.0 }.emit(datagram);
        }
        let taken = send_batch(socket, batch, part, singly, first, out);
        if *singly && taken > 1 {
            out.back_to_back.record(Nanos(monotonic().saturating_sub(now).0 / taken as u64), 1);
        }
        done += taken;
        if taken < part {
            break;
        }
    }
    done
}

/// Sends the first `count` datagrams. The first has number `sequence`. Returns how many were sent or dropped.
fn send_batch(
    socket: &UdpSender,
    batch: &mut SendBatch,
    count: usize,
    singly: &mut bool,
    sequence: u64,
    out: &mut StreamOut,
) -> usize {
    let (mut done, mut too_long) = (0, 0);
    while done < count {
        let single = *singly || count == 1;
        let sent = if single {
            socket.send_singly(batch, done..count, true)
        } else {
            socket.send_segments(batch.bytes(done..count), batch.datagram_bytes(), true)
        };
        let units = if single { sent.datagrams } else { sent.datagrams.min(1) };
        out.taken_packets += sent.datagrams as u64;
        out.taken_units += units as u64;
        done += sent.datagrams;
        let first = sequence + done as u64;
        let unit = if single { 1 } else { count - done };
        let (location, reason) = match sent.unsent {
            None => continue,
            Some(Unsent::Unknown) => {
                out.refused.add(first, 1, Location::SenderSocket, "send refused", 1);
                done += 1;
                continue;
            }
            Some(Unsent::Because(UdpSendError::NoBuffers)) => (Location::SenderQdisc, "ENOBUFS"),
            Some(Unsent::Because(UdpSendError::Denied)) => (Location::SenderStack, "EPERM"),
            Some(Unsent::Because(UdpSendError::Unreachable(_))) => (Location::SenderStack, "unreachable"),
            // Segments have to fit into packets; by itself a longer datagram goes in fragments.
            Some(Unsent::Because(UdpSendError::NotSegmentable | UdpSendError::MessageTooLong)) if !single => {
                *singly = true;
                continue;
            }
            // ICMP may have said so of an earlier datagram, and of more than one.
            Some(Unsent::Because(UdpSendError::MessageTooLong)) if too_long < TOO_LONG_MOST => {
                too_long += 1;
                continue;
            }
            // The buffer stayed full for as long as a send may wait, or earlier datagrams met a closed port.
            Some(Unsent::Because(error)) if error.may_retry() => return done,
            Some(Unsent::Because(error)) => {
                out.failure = Some(error.to_string());
                return done;
            }
        };
        out.evidence.add(first, unit as u64, location, reason, unit as u32);
        done += unit;
    }
    done
}
