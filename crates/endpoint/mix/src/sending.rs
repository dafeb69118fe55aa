//! Sends a mix of frames through an interface, at a rate, and counts each frame.
//!
//! [`Mixer::open`] chooses the engine. XDP live frames arrive on a veth as from a NIC's driver and are several times as fast. A packet
//! socket serves where the kernel, the interface or its far end does not support them. Both send the same frames in the same order.

use crate::caveats;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::schedule::Pinned;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::readable_until;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use longhaul_units::pacer::{Pace, Pacer};
use serde::Serialize;

use crate::engine::{Engine, EngineError, EngineKind};
use crate::plan::Plan;
use crate::spec::FCS_BYTES;

/// The longest call without a rate: Ctrl-C and the end of the run wait for it.
const CALL: Nanos = Nanos::from_millis(4);
/// The fewest and the most frames of a call.
const CALL_FRAMES: std::ops::RangeInclusive<u32> = 64..=1 << 16;
/// The most calls a second with a rate: a call of BPF_PROG_RUN takes some 50 µs besides its frames.
const PACED_CALLS: f64 = 4000.0;
/// The most frames of a call with a rate: half of a veth's ring. With more, frames of other senders are lost.
const PACED_FRAMES: u32 = 128;
/// Ethernet's preamble, start and gap, which a frame needs on a wire (IEEE 802.3 §3.1.1, §4.4.2).
const PREAMBLE_AND_GAP_BYTES: u64 = 20;
/// A caveat is raised where the rate is missed by more.
const RATE_TOLERANCE: f64 = 0.02;

/// How much to send, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixAmount {
    /// Frames a second; `None`: as fast as possible.
    pub packets_per_second: Option<f64>,
    /// How long; `None`: no bound.
    pub time: Option<Nanos>,
    /// How many frames; `None`: no bound.
    pub packets: Option<u64>,
}

/// Sends the frames of a plan, from one thread or several.
#[derive(Debug)]
pub struct Mixer {
    plan: Plan,
    engine: Engine,
    /// Why the faster engine is not used.
    note: Option<EngineError>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MixProgress {
    /// Time since the first frame.
    pub elapsed_ns: u64,
    /// Frames that the interface took.
    pub sent_packets: u64,
    /// Their bytes, FCS included.
    pub sent_bytes: u64,
    /// Frames that the interface did not take.
    pub refused_packets: u64,
}

/// What was sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MixResult {
    /// How frames were sent.
    pub engine: EngineKind,
    /// Why live frames were not used; `None` where they were, or were not tried.
    pub engine_note: Option<String>,
    /// What to do about it; the caveat has it.
    #[serde(skip)]
    pub engine_remedy: String,
    /// Time from before the first call until after the last one.
    pub duration_ns: u64,
    /// CPU time of the sending threads; on a veth, that of the far end's softirq included.
    pub cpu_ns: u64,
    /// Frames that the interface took.
    pub sent_packets: u64,
    /// Their bytes, FCS included.
    pub sent_bytes: u64,
    /// Frames that the interface did not take: on a veth, because the far end's ring was full or does not exist.
    pub refused_packets: u64,
    /// Frames a second.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub packets_per_second: f64,
    /// Bits a second of frames with FCS.
    pub l2_rate_bps: u64,
    /// The same with preamble and gap: the rate on a wire.
    pub l1_rate_bps: u64,
    /// The classes of the mix, in its order.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub classes: Vec<ClassResult>,
    /// The numbered stream; `None` where the mix has none.
    pub stream: Option<StreamResult>,
}

/// What was sent of a class.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassResult {
    /// Its name in the mix.
    pub name: String,
    /// What its frames are (docs/reference/mix.md).
    pub kind: &'static str,
    /// Its share by weight, 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub share: f64,
    /// Frames that the interface took.
    pub sent_packets: u64,
    /// Their bytes, FCS included.
    pub sent_bytes: u64,
}

/// What was sent of the numbered stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamResult {
    /// Datagrams that the interface took.
    pub sent_packets: u64,
    /// Datagrams that were numbered, from 0 on; the interface refused some of them.
    pub numbered_packets: u64,
}

impl Mixer {
    /// Prepares to send `plan` through the interface `ifindex` of the calling thread's network namespace, by the engine `asked`, or by the
    /// faster one that works. The trial sends only frames of the plan. A thread sends on each of `cpus`; if that is empty, one thread sends
    /// on any CPU.
    ///
    /// # Errors
    /// The [`EngineError`] of the engine that was asked for, or of the last one that was tried.
    pub fn open(ifindex: u32, plan: Plan, asked: Option<EngineKind>, cpus: &[usize]) -> Result<Self, EngineError> {
        let mut cpus = cpus.to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        for cpu in &cpus {
            Pinned::to(*cpu)?;
        }
        let open = |kind| Engine::open(kind, ifindex, &plan, &cpus);
        let (engine, note) = match asked {
            Some(kind) => (open(kind)?, None),
            None => match open(EngineKind::LiveFrames) {
                Ok(engine) => (engine, None),
                Err(error) => (open(EngineKind::PacketSocket)?, Some(error)),
            },
        };
        Ok(Self { plan, engine, note })
    }

    /// Prepares to make the frames of `plan` as live frames and to drop them, to measure what making them costs.
    ///
    /// # Errors
    /// [`EngineError`], where the kernel has no live frames.
    pub fn into_nothing(plan: Plan) -> Result<Self, EngineError> {
        Ok(Self { engine: Engine::into_nothing(&plan)?, plan, note: None })
    }

    /// How frames are sent.
    pub fn engine(&self) -> EngineKind {
        self.engine.kind()
    }

    /// Sends until `amount` or `stop` ends the run. Calls `report` every `interval`, if there is one.
    ///
    /// # Errors
    /// The interface or a CPU goes away.
    pub fn run(
        &self,
        amount: &MixAmount,
        stop: Option<Stop>,
        interval: Option<Nanos>,
        mut report: impl FnMut(&MixProgress),
    ) -> io::Result<MixResult> {
        let start = monotonic();
        let failed = AtomicBool::new(false);
        let run = Run { mixer: self, amount, stop, start, failed: &failed };
        let shares = self.engine.shares();
        let sent: Vec<io::Result<Sent>> = thread::scope(|scope| {
            let send = |share| scope.spawn(move || run.share(share, None, |_| {}));
            let others: Vec<_> = (1..shares).map(send).collect();
            let own = run.share(0, interval, &mut report);
            let joined = others.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            [own].into_iter().chain(joined).collect()
        });
        let sent = sent.into_iter().collect::<io::Result<Vec<Sent>>>()?;
        let last = sent.iter().map(|sent| sent.last).max().unwrap_or(start);
        let cpu = sent.iter().map(|sent| sent.cpu.0).sum();
        self.result(last.saturating_sub(start), Nanos(cpu))
    }

    fn progress(&self, elapsed: Nanos) -> io::Result<MixProgress> {
        let counts = self.engine.counts()?;
        let (sent_packets, sent_bytes) = self.sum(&counts.sent, |_| true);
        // Other threads send while this one reads.
        let refused_packets = counts.made.saturating_sub(sent_packets);
        Ok(MixProgress { elapsed_ns: elapsed.0, sent_packets, sent_bytes, refused_packets })
    }

    /// Frames and bytes of the templates whose number is `chosen`.
    fn sum(&self, sent: &[u64], chosen: impl Fn(usize) -> bool) -> (u64, u64) {
        let templates = self.plan.templates.iter().zip(sent).enumerate().filter(|(number, _)| chosen(*number));
        templates.fold((0, 0), |(packets, bytes), (_, (template, sent))| {
            (packets + sent, bytes + sent * (template.bytes.len() as u64 + u64::from(FCS_BYTES)))
        })
    }

    fn result(&self, duration: Nanos, cpu: Nanos) -> io::Result<MixResult> {
        let counts = self.engine.counts()?;
        let (sent_packets, sent_bytes) = self.sum(&counts.sent, |_| true);
        let spec = &self.plan.spec;
        let classes = spec.classes.iter().enumerate().map(|(number, class)| {
            let (packets, bytes) = self.sum(&counts.sent, |at| self.plan.templates[at].class == number);
            ClassResult {
                name: class.name.clone(),
                kind: class.kind.name(),
                share: spec.share(number),
                sent_packets: packets,
                sent_bytes: bytes,
            }
        });
        let seconds = duration.as_secs_f64();
        let rate = |bytes: u64| if seconds > 0.0 { (bytes as f64 * 8.0 / seconds) as u64 } else { 0 };
        Ok(MixResult {
            engine: self.engine.kind(),
            engine_note: self.note.as_ref().map(ToString::to_string),
            engine_remedy: self.note.as_ref().map_or(String::new(), |note| note.remedy().into()),
            duration_ns: duration.0,
            cpu_ns: cpu.0,
            sent_packets,
            sent_bytes,
            refused_packets: counts.made - sent_packets,
            packets_per_second: if seconds > 0.0 { sent_packets as f64 / seconds } else { 0.0 },
            l2_rate_bps: rate(sent_bytes),
            l1_rate_bps: rate(sent_bytes + PREAMBLE_AND_GAP_BYTES * sent_packets),
            classes: classes.collect(),
            stream: spec.has_stream().then(|| StreamResult {
                sent_packets: self.sum(&counts.sent, |at| self.plan.templates[at].numbered).0,
                numbered_packets: counts.sequence,
            }),
        })
    }
}

/// A thread's part of a run.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// When its last frame was sent.
    last: Nanos,
    cpu: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Run<'a> {
    mixer: &'a Mixer,
    amount: &'a MixAmount,
    stop: Option<Stop>,
    start: Nanos,
    /// Whether another thread failed.
    failed: &'a AtomicBool,
}

impl Run<'_> {
    /// Sends the frames of a share in the calling thread.
    fn share(self, share: usize, interval: Option<Nanos>, report: impl FnMut(&MixProgress)) -> io::Result<Sent> {
        let pinned = self.mixer.engine.cpu(share).map(Pinned::to).transpose().map_err(io::Error::other);
        let sent = pinned.and_then(|_pinned| self.send(share, interval, report));
        if sent.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        sent
    }

    fn send(self, share: usize, interval: Option<Nanos>, mut report: impl FnMut(&MixProgress)) -> io::Result<Sent> {
        let Self { mixer, amount, stop, start, failed } = self;
        let engine = &mixer.engine;
        let cpu = thread_cpu_time();
        let (shares, number) = (engine.shares() as u64, share as u64);
        let end = amount.time.map_or(Nanos::MAX, |time| start.saturating_add(time));
        let most = amount.packets.map_or(u64::MAX, |packets| packets.saturating_sub(number).div_ceil(shares));
        // Threads send in turn, a gap apart.
        let gap_ps = amount.packets_per_second.map_or(0, |rate| (1e12 / rate.max(1e-3)).max(1.0) as u64);
        let own_start = start.saturating_add(Nanos(gap_ps.saturating_mul(number) / 1000));
        let together = PACED_FRAMES / shares.min(PACED_FRAMES.into()) as u32;
        let burst = amount
            .packets_per_second
            .map_or(1.0, |rate| (rate / shares as f64 / PACED_CALLS).clamp(1.0, f64::from(together)))
            as u32;
        let mut pacer = Pacer::with_gap(own_start, gap_ps.saturating_mul(shares), burst, together);
        let mut call_frames = *CALL_FRAMES.start();
        let mut due = interval.map_or(Nanos::MAX, |interval| start.saturating_add(interval));
        let mut last = start;
        let stopped = || failed.load(Ordering::Relaxed) || stop.is_some_and(|stop| stop.requested().is_some());
        while !stopped() && engine.made(share) < most {
            let now = monotonic();
            if now >= due {
                report(&mixer.progress(now.saturating_sub(start))?);
                due = due.saturating_add(interval.unwrap_or(Nanos::MAX));
            }
            if now >= end {
                break;
            }
            let frames = match pacer.poll(now) {
                Pace::Wait(until) => {
                    let until = until.min(end).min(due);
                    match stop {
                        Some(stop) => _ = readable_until(stop, Some(until))?,
                        None => longhaul_kernel::wait::sleep_until(until),
                    }
                    continue;
                }
                Pace::Send(_) if gap_ps == 0 => call_frames,
                Pace::Send(frames) => frames,
            };
            let frames = u64::from(frames).min(most - engine.made(share)) as u32;
            engine.send(share, &mixer.plan, frames)?;
            last = monotonic();
            let cost = last.saturating_sub(now);
            pacer.learn(cost);
            if gap_ps == 0 {
                let fitting = f64::from(frames) * CALL.0 as f64 / cost.0.max(1) as f64;
                call_frames =
                    (fitting.min(2.0 * f64::from(frames)) as u32).clamp(*CALL_FRAMES.start(), *CALL_FRAMES.end());
            }
        }
        Ok(Sent { last, cpu: thread_cpu_time().saturating_sub(cpu) })
    }
}

impl MixResult {
    /// The caveats of this result, where `amount` was asked for.
    pub fn caveats(&self, amount: &MixAmount) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        if let Some(note) = &self.engine_note {
            caveats.push(Caveat::new(
                caveats::PACKET_SOCKET_USED,
                format!("frames went through a packet socket, as complete skbs, so a filter cannot save the receiver their cost: {note}"),
                &*self.engine_remedy,
            ));
        }
        if self.refused_packets > 0 {
            let all = self.refused_packets + self.sent_packets;
            caveats.push(Caveat::new(
                caveats::FRAMES_REFUSED,
                format!("the interface did not take {} of {all} frames", self.refused_packets),
                "use a lower rate: at a veth's far end the ring was full. Several CPUs need as many rings there: `ethtool -L IF rx N`",
            ));
        }
        if let Some(asked) = amount.packets_per_second
            && self.packets_per_second < asked * (1.0 - RATE_TOLERANCE)
            && self.duration_ns > 100_000_000
        {
            caveats.push(Caveat::new(
                caveats::RATE_NOT_ACHIEVED,
                format!("{:.0} frames a second were asked for, but {:.0} were sent", asked, self.packets_per_second),
                "use a lower rate, or give sender and receiver a CPU each",
            ));
        }
        caveats
    }
}
