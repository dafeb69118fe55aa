//! Sending probes on time and keeping their account, however they are sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::udp::SuperPacket;
use longhaul_kernel::wait::sleep_until;
use longhaul_rtt::probe_log::ProbeRow;
use longhaul_rtt::{Account, ClockWatch, Ended, Gap, GapReason, Observed, RttParameters, Schedule};
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use super::own_clock::read_clocks;

/// The thread wakes up this long before a probe is due and watches the clock, as waking up takes tens of microseconds; where probes are far
/// apart it need not, and a measurement of weeks costs little of a CPU.
const RISE_EARLY: Nanos = Nanos::from_micros(80);
/// Probes are far apart from this interval on.
const FAR_APART: Nanos = Nanos::from_millis(5);
/// How often to look whether the measurement was stopped.
const STOP_LOOK: Nanos = Nanos::from_millis(20);
/// How often rows are handed over.
const HAND_OVER: Nanos = Nanos::from_millis(100);
/// A copy of the last answer may come after it.
const COPIES_COME: Nanos = Nanos::from_millis(100);

/// How probes are sent and answers received. Two threads use it.
pub(super) trait Probes: Send + Sync + 'static {
    /// Sends probe `sequence`, which the program stamped with `program_ns`. What cannot be sent is lost.
    fn send(&self, sequence: u64, program_ns: i64);

    /// Receives what is there, waiting until `deadline` for something, and enters it into the account.
    fn receive(&self, account: &Shared, deadline: Nanos);
}

/// The account of two threads.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<Account>>);

impl Shared {
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Account) -> T) -> T {
        // No place in the account panics.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A measurement that runs.
pub(super) struct Probing {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Probing {
    /// Begins to send. `observe` gets what was seen, in the receiving thread, the last time with [`Observed::ended`].
    pub(super) fn start(
        probes: Arc<impl Probes>,
        parameters: &RttParameters,
        seed: u64,
        mut observe: impl FnMut(Observed) + Send + 'static,
    ) -> std::io::Result<Self> {
        let account = Shared(Arc::new(Mutex::new(Account::new(parameters.timeout_ns, parameters.first_sequence))));
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let stalls = Arc::new(Mutex::new(Vec::new()));
        let mut clocks = ClockWatch::new(read_clocks());
        let sending = {
            let (probes, account, parameters) = (probes.clone(), account.clone(), parameters.clone());
            let (stop, done, stalls) = (stop.clone(), done.clone(), stalls.clone());
            Builder::new().name("probe".into()).spawn(move || {
                let stalled = |gap| stalls.lock().unwrap_or_else(PoisonError::into_inner).push(gap);
                let skipped = send_all(&*probes, &account, &parameters, seed, &stop, stalled);
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(skipped);
            })?
        };
        let receiving = Builder::new().name("answers".into()).spawn(move || {
            let mut hand_over = monotonic() + HAND_OVER;
            loop {
                let skipped = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                probes.receive(&account, hand_over);
                let now = monotonic();
                if skipped.is_none() && now < hand_over {
                    continue;
                }
                hand_over = now + HAND_OVER;
                let mut gaps = std::mem::take(&mut *stalls.lock().unwrap_or_else(PoisonError::into_inner));
                observe(account.with(|account| {
                    let mut rows = Vec::new();
                    match clocks.look(read_clocks()) {
                        Some(gap) => gaps.push(Gap { left_out: account.leave_out(|row| rows.push(row)), ..gap }),
                        None => account.sound(),
                    }
                    observed(account, skipped, rows, gaps)
                }));
                if skipped.is_some() {
                    return;
                }
            }
        })?;
        Ok(Self { stop, threads: vec![sending, receiving] })
    }

    /// Sends no more; answers are awaited.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(super) fn join(&mut self) {
        // A panic was printed when it happened.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.stop();
    }
}

fn observed(account: &mut Account, skipped: Option<Nanos>, mut rows: Vec<ProbeRow>, gaps: Vec<Gap>) -> Observed {
    let ended = match skipped {
        None => {
            account.retire(realtime_ns(), |row| rows.push(row));
            None
        }
        Some(skipped) => {
            account.finish(|row| rows.push(row));
            Some(Ended { skipped })
        }
    };
    Observed { rows, recent: account.take_recent(), counts: account.counts(), gaps, ended }
}

/// Headers before a payload have at most so many bytes.
pub(super) const HEADERS_MOST: usize = 256;

/// What `parse` reads from the payload in `packet`, behind headers of the layers below. It tells its probe's number too. Of a packet that
/// was fragmented the first part will do.
pub(super) fn read_behind_headers<T>(
    packet: &[u8],
    asked: &RttParameters,
    parse: impl Fn(&[u8]) -> Option<(u64, T)>,
) -> Option<T> {
    (0..packet.len().min(HEADERS_MOST)).find_map(|at| {
        let payload = packet.get(at..)?;
        let (sequence, content) = parse(payload)?;
        (payload.len() <= asked.payload_of(sequence) as usize).then_some(content)
    })
}

/// The kernel's stamp of a packet, Unix time in nanoseconds.
pub(super) fn kernel_stamp(packet: &SuperPacket<'_>) -> Option<i64> {
    packet.received_at_kernel.and_then(|at| i64::try_from(at.0).ok())
}

/// `CLOCK_REALTIME`, nanoseconds.
pub(super) fn realtime_ns() -> i64 {
    i64::try_from(realtime().0).unwrap_or(i64::MAX)
}

/// Sends until the amount is sent or `stop` is set, then waits for answers. Tells when the host did not let it send. Returns the time by
/// which the schedule was put off.
fn send_all(
    probes: &impl Probes,
    account: &Shared,
    asked: &RttParameters,
    seed: u64,
    stop: &AtomicBool,
    mut stalled: impl FnMut(Gap),
) -> Nanos {
    let start = monotonic();
    let mut schedule = Schedule::new(start, Nanos(asked.interval_ns), asked.poisson.then_some(seed));
    let end = match asked.amount {
        Amount::DurationNs(ns) => start.saturating_add(Nanos(ns)),
        _ => Nanos::MAX,
    };
    let most = asked.probes().unwrap_or(u64::MAX);
    let early = if asked.interval_ns < FAR_APART.0 { RISE_EARLY } else { Nanos::ZERO };
    let mut sent = 0;
    while sent < most && schedule.due() < end {
        while !stop.load(Ordering::Relaxed) && !wait(schedule.due(), early) {}
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (sequence, program_ns) = account.with(|account| {
            let now = realtime_ns();
            let payload_bytes = asked.payload_of(account.next());
            (account.send(now, payload_bytes), now)
        });
        probes.send(sequence, program_ns);
        sent += 1;
        let put_off = schedule.sent(monotonic());
        if put_off > Nanos::ZERO {
            let from_ns = program_ns.saturating_sub(i64::try_from(put_off.0).unwrap_or(i64::MAX));
            stalled(Gap { why: GapReason::Stalled, from_ns, to_ns: program_ns, step_ns: 0, left_out: 0 });
        }
    }
    let over = monotonic().saturating_add(Nanos(asked.timeout_ns));
    while monotonic() < over && !account.with(|account| account.all_answered()) {
        sleep_until(monotonic() + STOP_LOOK);
    }
    sleep_until((monotonic() + COPIES_COME).min(over));
    schedule.skipped()
}

/// Waits towards `due`, not longer than until the next look at whether to stop. Whether it is due.
fn wait(due: Nanos, early: Nanos) -> bool {
    let now = monotonic();
    let rise = due.saturating_sub(early);
    if rise > now {
        sleep_until(rise.min(now + STOP_LOOK));
        return false;
    }
    while monotonic() < due {
        std::hint::spin_loop();
    }
    true
}
