//! The kernel's drop events of this test at this end, packet by packet.
//!
//! Only events of this host's own network namespace count. The other end reports its own, and what lies between them on the same
//! machine (an emulator) is the network.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longhaul_bpf::BpfError;
use longhaul_bpf::drops::{DropEvent, DropOptions, Drops, Flow, HostRole, ReasonNames, place};
use longhaul_bpf::symbols::Symbols;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_result::Location;
use longhaul_session::PacketsByLocation;
use longhaul_udp::account::ENTRY_BYTES;
use longhaul_udp::locate::{EvidenceRecorder, Total, TotalScope};
use longhaul_wire::probe::{Cookie, FIRST_RESERVED};

use super::missing::Missing;
use super::receiving::{Account, Source};

/// Places where a packet can be lost.
const LOCATIONS: usize = Location::ALL.len();
/// How often events are read.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// The most fragments that were not joined whose content a test keeps: 13 MB with some 200 bytes each.
const REFUSED_MOST: usize = 1 << 16;

/// The usual MTU: one host may have no more than this although the other has.
const USUAL_MTU: u32 = 1_500;
/// IPv4 and UDP.
const UDP_HEADERS: u32 = 28;
/// Counts to the payload of IP.
const UDP_HEADER: u64 = 8;

/// Whether datagrams with so much payload may be longer than a packet.
pub(super) fn may_be_fragmented(payload_bytes: u32) -> bool {
    payload_bytes + UDP_HEADERS > USUAL_MTU
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of the packets that this end sent.
    pub(super) sent: SeenOfDirection,
    /// Of the packets that were sent to it.
    pub(super) received: SeenOfDirection,
    /// Whether it is known how many drops have no event.
    pub(super) complete: bool,
    /// The most drops about which nothing is known.
    pub(super) unseen_packets: u64,
}

/// Drops of one direction's packets.
#[derive(Debug, Default)]
pub(super) struct SeenOfDirection {
    /// Packet by packet, each stream.
    pub(super) evidence: Vec<EvidenceRecorder>,
    /// Counts alone, where there was no room for the events.
    pub(super) totals: Vec<Total>,
    /// Packets and super-packets for which a socket had no room, in either of the above.
    pub(super) buffer_full_units: u64,
    /// Damaged packets of the test whose sequence number could not be told.
    pub(super) unidentified_packets: u64,
    /// Whether the stack had a fragment twice: the path copies some.
    pub(super) copied_fragments: bool,
}

/// Datagrams of the proof that were dropped at each location for each reason.
type DroppedProof = Arc<Mutex<BTreeMap<(Location, String), u64>>>;

/// Packets whose drop was seen so far, by location; those of fragments are placed at the end.
#[derive(Debug, Default)]
struct SoFar {
    sent: [AtomicU64; LOCATIONS],
    /// Those of them that are [`Missing`].
    received: [AtomicU64; LOCATIONS],
}

/// Watches for drops until it is finished.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    proof: DroppedProof,
    so_far: Arc<SoFar>,
    thread: Option<JoinHandle<Seen>>,
}

impl Watch {
    /// Watches `flows` of a test whose streams are `received` with these accounts from these sources. `backward_is_ours`: this end is the server, whose packets go backward.
    /// `unit_packets_most`: packets that may travel together. `payload_bytes`: of each packet. `report_bytes`: what a report may have.
    ///
    /// # Errors
    /// Where the kernel or the user's rights do not allow it.
    pub(super) fn start(
        flows: &[Flow],
        received: Vec<(Account, Source)>,
        backward_is_ours: bool,
        unit_packets_most: u64,
        payload_bytes: u32,
        report_bytes: u64,
    ) -> Result<Self, BpfError> {
        let own = NetNamespace::current();
        // A kernel without such a cookie reports the events of all namespaces, and `foreign` sorts them out.
        let namespace_cookie = own.as_ref().ok().and_then(|own| own.cookie().ok()).filter(|cookie| *cookie != 0);
        let fragments = may_be_fragmented(payload_bytes);
        let options = DropOptions { namespace_cookie, fragments, ..DropOptions::default() };
        let drops = Drops::attach(flows, &options)?;
        let stop: Arc<AtomicBool> = Arc::default();
        let proof = DroppedProof::default();
        let so_far = Arc::<SoFar>::default();
        let (accounts, sources) = received.into_iter().unzip();
        let watch = Watching {
            proof: Arc::clone(&proof),
            so_far: Arc::clone(&so_far),
            drops,
            // Without names of functions most reasons still say enough.
            symbols: Symbols::read().ok(),
            namespace: own.and_then(|own| own.inode()).ok(),
            backward_is_ours,
            unit_packets_most,
            payload_bytes,
            report_bytes,
            missing: Missing::new(accounts),
            sources,
        };
        let stopped = Arc::clone(&stop);
        // Without a thread there is no evidence: the losses then stay unexplained.
        let thread = Builder::new().name("drops".into()).spawn(move || watch.run(&stopped)).ok();
        Ok(Self { stop, proof, so_far, thread })
    }

    /// Where and why most datagrams of the proof were dropped so far, and how many; `None` if none were.
    pub(super) fn dropped_proof(&self) -> Option<(Location, String, u64)> {
        let dropped = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        let ((location, why), packets) = dropped.iter().max_by_key(|(_, packets)| **packets)?;
        Some((*location, why.clone(), *packets))
    }

    /// Packets dropped so far, by location: those that this end `sent`, or those that were sent to it.
    pub(super) fn so_far(&self, sent: bool) -> PacketsByLocation {
        let seen = if sent { &self.so_far.sent } else { &self.so_far.received };
        std::array::from_fn(|location| seen[location].load(Ordering::Relaxed))
    }

    /// Stops watching and returns what was seen.
    pub(super) fn finish(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Watching {
    proof: DroppedProof,
    so_far: Arc<SoFar>,
    drops: Drops,
    symbols: Option<Symbols>,
    namespace: Option<u64>,
    backward_is_ours: bool,
    unit_packets_most: u64,
    payload_bytes: u32,
    report_bytes: u64,
    missing: Missing,
    /// Of each stream that is received.
    sources: Vec<Source>,
}

impl Watching {
    fn run(mut self, stop: &AtomicBool) -> Seen {
        let limits = self.missing.limits();
        let none = || SeenOfDirection {
            evidence: limits.iter().map(|limit| evidence_below(*limit, self.report_bytes, limits.len())).collect(),
            ..SeenOfDirection::default()
        };
        let mut seen = Seen { sent: none(), received: none(), complete: false, unseen_packets: 0 };
        let names = self.drops.reason_names().clone();
        let (symbols, namespace, backward_is_ours) = (self.symbols.take(), self.namespace, self.backward_is_ours);
        let placing = Placing { names, symbols, backward_is_ours };
        let mut refused = Refused::default();
        loop {
            // Read before the look at `stop`, so that the last events are not missed.
            let stopping = stop.load(Ordering::Relaxed);
            self.drops.drain(|event| {
                if foreign(&event, namespace) {
                    return;
                }
                let cookie = Cookie(event.cookie);
                if placing.is_copied_fragment(event.reason) {
                    placing.direction(&mut seen, cookie).copied_fragments = true;
                }
                if let Some((location, why)) = placing.of(event.reason, event.location, cookie) {
                    let Some(location) = refused.take(&event, location, &why) else { return };
                    if event.sequences().any(|sequence| sequence >= FIRST_RESERVED) {
                        let mut proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
                        *proof.entry((location, why.clone())).or_default() += 1;
                    }
                    if event.fragment.is_none() {
                        let of_data = event.sequences().filter(|sequence| *sequence < FIRST_RESERVED);
                        if placing.is_sent(cookie) {
                            self.so_far.sent[location as usize].fetch_add(of_data.count() as u64, Ordering::Relaxed);
                        } else {
                            let stream = usize::from(cookie.stream());
                            each_run(of_data, |first, count| self.missing.dropped(stream, first, count, location));
                        }
                    }
                    let direction = placing.direction(&mut seen, cookie);
                    // Streams may share the port, which is all that is known.
                    let is_peers = |from| self.sources.iter().any(|source| source.is_at(from));
                    direction.unidentified_packets += u64::from(event.unidentified.is_some_and(is_peers));
                    if is_damage(&why) {
                        direction.unidentified_packets += nobodys(cookie, event.sequences(), &limits);
                    }
                    let unit = u64::from(location == Location::ReceiverSocketBuffer && !event.continued);
                    direction.buffer_full_units += unit;
                    if let Some(evidence) = direction.evidence.get_mut(usize::from(cookie.stream())) {
                        add(evidence, &event, location, &why);
                    }
                }
            });
            self.missing.settle(&self.so_far.received);
            if stopping {
                refused.place(u64::from(self.payload_bytes) + UDP_HEADER, &placing, &mut seen);
                seen.complete = self.add_unrecorded(&mut seen, &placing).is_ok();
                return seen;
            }
            if self.drops.wait(READ_INTERVAL).is_err() {
                return seen;
            }
        }
    }

    /// Adds drops without an event: with their place where that is known, else as unseen.
    fn add_unrecorded(&self, seen: &mut Seen, placing: &Placing) -> std::io::Result<()> {
        for unrecorded in self.drops.unrecorded()? {
            let cookie = Cookie(unrecorded.cookie);
            let place = placing.of(unrecorded.reason, unrecorded.location, cookie);
            let Some((location, why)) = place else { continue };
            let direction = placing.direction(seen, cookie);
            if location == Location::ReceiverSocketBuffer {
                direction.buffer_full_units += unrecorded.units;
            }
            let reason = format!("{why}: more drops than events could be read");
            direction.totals.push(Total { location, reason, packets: unrecorded.packets, scope: TotalScope::Test });
        }
        let lost = self.drops.lost()?;
        let runs = lost.skipped_runs.saturating_mul(self.unit_packets_most);
        let recorders = seen.sent.evidence.iter().chain(&seen.received.evidence);
        let left_out = recorders.map(EvidenceRecorder::left_out_packets).fold(0, u64::saturating_add);
        seen.unseen_packets =
            [runs, lost.packets, lost.unread_packets, left_out].into_iter().fold(0, u64::saturating_add);
        Ok(())
    }
}

/// What tells where a drop happened.
struct Placing {
    names: ReasonNames,
    symbols: Option<Symbols>,
    backward_is_ours: bool,
}

impl Placing {
    /// Location and reason; `None` where it was no loss.
    fn of(&self, reason: u32, address: u64, cookie: Cookie) -> Option<(Location, String)> {
        let role = if self.is_sent(cookie) { HostRole::Sender } else { HostRole::Receiver };
        let symbol = self.symbols.as_ref().and_then(|symbols| symbols.name(address)).unwrap_or("");
        let reason = self.names.name(reason);
        let location = place(&reason, symbol, role)?;
        let why = if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") };
        Some((location, why))
    }

    fn is_copied_fragment(&self, reason: u32) -> bool {
        self.names.name(reason) == "DUP_FRAG"
    }

    fn direction<'a>(&self, seen: &'a mut Seen, cookie: Cookie) -> &'a mut SeenOfDirection {
        if self.is_sent(cookie) { &mut seen.sent } else { &mut seen.received }
    }

    fn is_sent(&self, cookie: Cookie) -> bool {
        cookie.is_backward() == self.backward_is_ours
    }
}

/// Whether the event happened in another namespace than ours. Where a socket is being freed, the event has the namespace of the task, which
/// need not be the socket's.
fn foreign(event: &DropEvent<'_>, own: Option<u64>) -> bool {
    !event.namespace_of_task && event.namespace_inode.zip(own).is_some_and(|(inode, own)| u64::from(inode) != own)
}

/// Whether the reason is one of those that join fragments.
fn is_joining(why: &str) -> bool {
    why.contains("frag") || why.contains("FRAG")
}

/// Fragments that the receiver's stack did not join: mostly because too many datagrams wait for a fragment already, or because 64 others
/// came between two of one datagram (`net.ipv4.ipfrag_max_dist`).
///
/// Where that is all of a datagram, the stack lost it. Where it is a part, the others may have been lost before, or may wait.
#[derive(Debug, Default)]
struct Refused {
    /// By cookie and sequence number: why, and the bytes of the IP payload from each offset on.
    datagrams: BTreeMap<(u32, u64), (String, BTreeMap<u32, u32>)>,
    /// Fragments of them, [`REFUSED_MOST`] at most.
    fragments: usize,
}

impl Refused {
    /// Keeps an event of this kind until all are there; else, where it is placed at once. The other end can send as many as it likes:
    /// beyond [`REFUSED_MOST`], whether all of a datagram came is not known.
    fn take(&mut self, event: &DropEvent<'_>, location: Location, why: &str) -> Option<Location> {
        let Some(fragment) = event.fragment.clone().filter(|_| location == Location::ReceiverStack && is_joining(why))
        else {
            return Some(location);
        };
        if self.fragments >= REFUSED_MOST {
            return Some(Location::Unexplained);
        }
        for sequence in event.sequences() {
            self.fragments += 1;
            let (_, parts) =
                self.datagrams.entry((event.cookie, sequence)).or_insert_with(|| (why.into(), BTreeMap::new()));
            parts.insert(fragment.start, fragment.end - fragment.start);
        }
        None
    }

    /// Adds them to what was seen. `bytes` is the IP payload of a whole datagram.
    fn place(self, bytes: u64, placing: &Placing, seen: &mut Seen) {
        for ((cookie, sequence), (why, parts)) in self.datagrams {
            let whole = parts.values().map(|part| u64::from(*part)).sum::<u64>() >= bytes;
            let location = if whole { Location::ReceiverStack } else { Location::Unexplained };
            let why = if whole { why } else { format!("{why}, of a part of the datagram") };
            let cookie = Cookie(cookie);
            let direction = placing.direction(seen, cookie);
            if let Some(evidence) = direction.evidence.get_mut(usize::from(cookie.stream())) {
                evidence.add_fragment(sequence, location, &why);
            }
        }
    }
}

/// Whether packets are dropped for damage with this reason.
pub(super) fn is_damage(reason: &str) -> bool {
    ["UDP_CSUM", "IP_CSUM", "IP_INHDR"].iter().any(|known| reason.starts_with(known))
}

/// Packets with a stream or a sequence number that no packet of a test can have: they were damaged.
///
/// `limits`: for each stream, what its numbers are below.
fn nobodys(cookie: Cookie, sequences: impl Iterator<Item = u64>, limits: &[u64]) -> u64 {
    let limit = limits.get(usize::from(cookie.stream()));
    let is_nobodys = |sequence: &u64| limit.is_none_or(|limit| (*limit..FIRST_RESERVED).contains(sequence));
    sequences.filter(is_nobodys).count() as u64
}

/// For events of one of `streams` with numbers below `limit`. Those of all streams and both directions take as much as the report may have,
/// beside a table for each: who sends chooses the numbers, and how many travel together.
pub(super) fn evidence_below(limit: u64, report_bytes: u64, streams: usize) -> EvidenceRecorder {
    let table = limit.div_ceil(1 << 16).saturating_mul(ENTRY_BYTES as u64);
    EvidenceRecorder::below(limit).within(table.saturating_add(report_bytes / (2 * streams.max(1) as u64)))
}

fn add(evidence: &mut EvidenceRecorder, event: &DropEvent<'_>, location: Location, why: &str) {
    if event.fragment.is_some() {
        event.sequences().for_each(|sequence| evidence.add_fragment(sequence, location, why));
        return;
    }
    each_run(event.sequences(), |first, count| evidence.add(first, count, location, why, event.unit_packets));
}

/// Hands over the runs of consecutive numbers: the first of each, and how many.
fn each_run(sequences: impl Iterator<Item = u64>, mut take: impl FnMut(u64, u64)) {
    let mut run: Option<(u64, u64)> = None;
    for sequence in sequences {
        run = match run {
            Some((first, count)) if first + count == sequence => Some((first, count + 1)),
            before => {
                before.into_iter().for_each(|(first, count)| take(first, count));
                Some((sequence, 1))
            }
        };
    }
    run.into_iter().for_each(|(first, count)| take(first, count));
}

#[cfg(test)]
mod tests {
    use longhaul_wire::probe::{Cookie, FIRST_RESERVED};

    use super::nobodys;

    #[test]
    fn numbers_that_no_packet_of_the_test_has_are_of_damaged_packets() {
        let limits = [1_000, 50];
        let of = |stream: u8, sequence: u64| nobodys(Cookie::new(7, false, stream), [sequence].into_iter(), &limits);
        assert_eq!([of(0, 0), of(0, 999), of(1, 49)], [0, 0, 0], "of the test");
        assert_eq!([of(0, 1_000), of(1, 50), of(0, 1 << 34), of(0, FIRST_RESERVED - 1)], [1, 1, 1, 1], "beyond it");
        assert_eq!([of(2, 0), of(2, 999)], [1, 1], "of a stream that it has not");
        assert_eq!([of(0, FIRST_RESERVED), of(1, u64::MAX)], [0, 0], "of proofs");
    }
}
