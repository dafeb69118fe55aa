//! The thread that samples `TCP_INFO` of all flows of an end, and switches their congestion controls when due.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::tcp::{congestion_control, set_unsent_limit, unread_bytes};
use longhaul_kernel::wait::sleep_until;
use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_tcp::{
    CongestionSince, FlowSummary, MAX_SAMPLES, Receiving, Sample, SamplingCost, Series, TcpInfo, TcpParameters,
    TcpStreamReport, fields, unsent_limit_bytes,
};
use longhaul_units::Nanos;

use super::congestion::Congestion;
use super::counts::Counts;
use super::flow::Flow;
use super::info::read_info;
use crate::caveats;
use crate::data::SenderNow;

/// Bytes of samples, as text, that one end passes to the other at most: half of the longest report.
const TEXT_MOST: usize = 32 << 20;
/// How the memory that a server has left for samples is divided: this part for the samples, and this one for their text, which exists in several
/// copies while it is reported. A report may have a sixteenth of the memory.
const SAMPLES_PART: u64 = 4;
const TEXT_PART: u64 = 32;

/// How much may be kept of all flows of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    samples: usize,
    text_bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { samples: MAX_SAMPLES, text_bytes: TEXT_MOST }
    }
}

impl Room {
    /// So that samples and text stay below `bytes`.
    pub(super) fn within(bytes: u64) -> Self {
        let most = |bytes: u64, part: u64, most: usize| usize::try_from(bytes / part).unwrap_or(most).min(most);
        let samples = bytes / size_of::<Sample>() as u64;
        Self { samples: most(samples, SAMPLES_PART, MAX_SAMPLES), text_bytes: most(bytes, TEXT_PART, TEXT_MOST) }
    }
}

/// Bytes that may lie unsent before the first sample: what 1 Gb/s sends in the 10 ms of a sample.
const FIRST_UNSENT_BYTES: u32 = 1 << 20;

/// Samples flows, from its start until it is finished.
#[derive(Debug)]
pub(super) struct Sampler {
    interval: Nanos,
    omit: Nanos,
    keep: bool,
    room: Room,
    waiting: Vec<Sampled>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<SampledFlows>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// When sending began; 0 before.
    began_ns: AtomicU64,
    now: Mutex<SenderNow>,
}

/// What sampling found.
#[derive(Debug, Default)]
pub(super) struct SampledFlows {
    /// Each flow with what its samples say.
    pub(super) flows: BTreeMap<TcpStreamId, TcpStreamReport>,
    pub(super) cost: SamplingCost,
    /// Where the memory of this server has no room for all samples.
    pub(super) caveat: Option<Caveat>,
}

/// A flow that is sampled.
#[derive(Debug)]
pub(super) struct Sampled {
    id: TcpStreamId,
    sends: bool,
    socket: Arc<TcpStream>,
    counts: Arc<Counts>,
    congestion: Congestion,
    report: TcpStreamReport,
    summary: FlowSummary,
    receiving: Receiving,
    series: Option<Series>,
    /// Bytes that may lie unsent, as last set in the kernel.
    unsent_bytes: u32,
    /// Whether all that was sent is acknowledged: later samples do not count.
    over: bool,
    omitting: bool,
}

impl Sampled {
    pub(super) fn new(flow: &Flow, congestion: Congestion) -> Self {
        // A writer may fill the buffer before there is a sample.
        let limited = flow.sends && set_unsent_limit(flow.socket(), FIRST_UNSENT_BYTES).is_ok();
        Self {
            id: flow.id,
            sends: flow.sends,
            socket: flow.shared_socket(),
            counts: flow.counts(),
            congestion,
            report: TcpStreamReport::default(),
            summary: FlowSummary::default(),
            receiving: Receiving::default(),
            series: None,
            unsent_bytes: if limited { FIRST_UNSENT_BYTES } else { u32::MAX },
            over: false,
            omitting: false,
        }
    }

    /// Takes a sample where there is something to sample. Returns whether it did.
    fn sample(&mut self, began: Nanos, omit: Nanos) -> bool {
        // A sender counts from when it may send, or waiting for that would count as the application's.
        if self.over || self.sends && began == Nanos::ZERO {
            return false;
        }
        let now = monotonic();
        let Some(info) = read_info(&*self.socket) else { return false };
        if self.report.congestion.is_empty() {
            let name = congestion_control(&*self.socket).unwrap_or_default();
            self.report.congestion.push(CongestionSince { at_ns: now.0, name });
            self.omitting = omit > Nanos::ZERO;
        }
        if self.sends
            && let Some(name) = self.congestion.advance(now.saturating_sub(began), &self.socket)
            && self.report.congestion.last().is_none_or(|last| last.name != name)
        {
            self.report.congestion.push(CongestionSince { at_ns: now.0, name });
        }
        if self.sends {
            self.bound_unsent(&info);
        }
        self.summary.take(now.0, &info);
        if !self.sends {
            self.receiving.take(now.0, &info, unread_bytes(&*self.socket).unwrap_or(0));
        }
        if self.omitting && now >= began.saturating_add(omit) {
            self.omitting = false;
            self.report.omitted_retransmits = self.summary.retransmitted();
            self.report.omitted_max_cwnd_bytes = self.summary.max_cwnd_bytes;
            self.summary.restart();
            self.receiving = Receiving::default();
        }
        if let Some(series) = &mut self.series {
            // A schedule has fewer steps than a byte has values.
            let congestion = (self.report.congestion.len() - 1) as u8;
            series.push(Sample { at_ns: now.0, congestion, info });
        }
        let unacknowledged = |info: &TcpInfo| info.value(fields::UNACKED) + info.value(fields::NOTSENT_BYTES);
        self.over = self.counts.is_over() && unacknowledged(&info) == 0;
        true
    }
}

impl Sampled {
    /// Bounds the unsent bytes to what is sent in a short time, so that a test ends near its time.
    fn bound_unsent(&mut self, info: &TcpInfo) {
        let Some(bytes) = unsent_limit_bytes(info) else { return };
        // A limit that nothing comes near needs no system call, and a flow that may write more needs it at once.
        let lower = bytes < self.unsent_bytes && info.value(fields::NOTSENT_BYTES) > bytes.into();
        let wider = bytes > self.unsent_bytes.saturating_add(self.unsent_bytes / 3);
        if lower || wider {
            self.unsent_bytes = bytes;
            // Where the kernel has no such limit, the end takes longer.
            let _ = set_unsent_limit(&*self.socket, bytes);
        }
    }
}

impl Sampler {
    pub(super) fn new(parameters: &TcpParameters, room: Room) -> Self {
        Self {
            interval: Nanos(parameters.sample_ns),
            omit: Nanos(parameters.omit_ns),
            keep: parameters.keep_samples,
            room,
            waiting: Vec::new(),
            shared: Arc::default(),
            thread: None,
        }
    }

    /// Another flow, before the start.
    pub(super) fn follow(&mut self, flow: Sampled) {
        self.waiting.push(flow);
    }

    /// All flows are there.
    pub(super) fn start(&mut self) {
        let mut flows = std::mem::take(&mut self.waiting);
        if self.keep {
            let most = self.room.samples / flows.len().max(1);
            flows.iter_mut().for_each(|flow| flow.series = Some(Series::new(most)));
        }
        let (shared, interval, omit, room) = (Arc::clone(&self.shared), self.interval, self.omit, self.room);
        let work = move || run(flows, &shared, (interval, omit), room);
        // Without a thread there are no samples, and the result says so: it has none.
        self.thread = Builder::new().name("sample".into()).spawn(work).ok();
    }

    /// Sending begins now.
    pub(super) fn begin_sending(&self) {
        self.shared.began_ns.store(monotonic().0, Ordering::Release);
    }

    /// The state of the sending flows.
    pub(super) fn now(&self) -> SenderNow {
        *self.shared.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops sampling.
    pub(super) fn finish(&mut self) -> SampledFlows {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}

fn run(mut flows: Vec<Sampled>, shared: &Shared, (interval, omit): (Nanos, Nanos), room: Room) -> SampledFlows {
    let start = monotonic();
    let mut cost = SamplingCost { interval_ns: interval.0, ..SamplingCost::default() };
    let mut tick = start;
    // It looks at least this often whether it is over.
    let patience = Nanos::from_millis(100);
    loop {
        // Read before the last samples, so that there is one at the end.
        let stopping = shared.stop.load(Ordering::Acquire);
        let began = Nanos(shared.began_ns.load(Ordering::Acquire));
        let now = monotonic();
        let switch = (flows.iter())
            .filter(|flow| flow.sends && began > Nanos::ZERO)
            .filter_map(|flow| Some(began.saturating_add(flow.congestion.due()?)))
            .min()
            .unwrap_or(Nanos::MAX);
        if now >= tick || now >= switch || stopping {
            cost.samples += flows.iter_mut().map(|flow| u64::from(flow.sample(began, omit))).sum::<u64>();
            *shared.now.lock().unwrap_or_else(PoisonError::into_inner) = sender_now(&flows);
            while tick <= now {
                tick += interval;
            }
        }
        if stopping {
            break;
        }
        sleep_until(tick.min(switch).min(now + patience));
    }
    cost.cpu_time_ns = thread_cpu_time().0;
    cost.elapsed_ns = monotonic().saturating_sub(start).0;
    thin(&mut flows, room.text_bytes);
    cost.kept_one_of = flows.iter().filter_map(|flow| flow.series.as_ref()).map(Series::stride).max().unwrap_or(0);
    let report = |flow: Sampled| {
        let samples = flow.series.map(|series| series.to_text());
        let receiving = (!flow.sends).then(|| flow.receiving.summary());
        (flow.id, TcpStreamReport { summary: flow.summary, receiving, samples, ..flow.report })
    };
    SampledFlows { flows: flows.into_iter().map(report).collect(), cost, caveat: thinned(cost.kept_one_of, room) }
}

fn thinned(kept_one_of: u32, room: Room) -> Option<Caveat> {
    (kept_one_of > 1 && room != Room::default()).then(|| {
        let message =
            format!("of its TCP samples one of {kept_one_of} is kept, as the server limits the memory of a test");
        Caveat::new(
            caveats::SAMPLES_THINNED,
            message,
            "take fewer samples (`sample_ns`), or raise `memory_cap` at the server",
        )
    })
}

/// Leaves out samples until they fit into the report.
fn thin(flows: &mut [Sampled], text_most: usize) {
    loop {
        let bytes: usize =
            flows.iter().filter_map(|flow| flow.series.as_ref()).map(|series| series.to_text().len()).sum();
        let shortest = flows.iter().filter_map(|flow| flow.series.as_ref()).all(|series| series.samples().len() <= 2);
        if bytes <= text_most || shortest {
            return;
        }
        flows.iter_mut().filter_map(|flow| flow.series.as_mut()).for_each(Series::thin);
    }
}

fn sender_now(flows: &[Sampled]) -> SenderNow {
    let mut now = SenderNow::default();
    let mut count = 0;
    for (_, info) in flows.iter().filter(|flow| flow.sends).filter_map(|flow| flow.summary.last()) {
        now.retransmits += info.value(fields::TOTAL_RETRANS);
        now.cwnd_bytes += info.value(fields::SND_CWND) * info.value(fields::SND_MSS);
        now.rtt_ns += info.value(fields::RTT) * 1_000;
        count += 1;
    }
    now.rtt_ns /= count.max(1);
    now
}
