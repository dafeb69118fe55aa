//! Sending probes on time and keeping their account, however they are sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::clock::{RealtimeOffset, monotonic, realtime, realtime_offset};
use longhaul_kernel::wait::sleep_until;
use longhaul_rtt::{Account, Ended, Observed, RttParameters, Schedule};
use longhaul_terms::Amount;
use longhaul_udp::Timestamps;
use longhaul_units::Nanos;

use crate::udp::stepped;

/// The thread wakes up this long before a probe is due and watches the clock: waking up takes tens of microseconds.
const RISE_EARLY: Nanos = Nanos::from_micros(80);
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
        let account = Shared(Arc::new(Mutex::new(Account::new(parameters.timeout_ns))));
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let before = realtime_offset();
        let sending = {
            let (probes, account, parameters) = (probes.clone(), account.clone(), parameters.clone());
            let (stop, done) = (stop.clone(), done.clone());
            Builder::new().name("probe".into()).spawn(move || {
                let skipped = send_all(&*probes, &account, &parameters, seed, &stop);
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
                observe(account.with(|account| observed(account, skipped, before)));
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

fn observed(account: &mut Account, skipped: Option<Nanos>, before: RealtimeOffset) -> Observed {
    let mut rows = Vec::new();
    let ended = match skipped {
        None => {
            account.retire(realtime_ns(), |row| rows.push(row));
            None
        }
        Some(skipped) => {
            account.finish(|row| rows.push(row));
            let stepped = stepped(Timestamps::Kernel, before, realtime_offset());
            Some(Ended { skipped, stepped })
        }
    };
    Observed { rows, recent: account.take_recent(), counts: account.counts(), ended }
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

/// `CLOCK_REALTIME`, nanoseconds.
pub(super) fn realtime_ns() -> i64 {
    i64::try_from(realtime().0).unwrap_or(i64::MAX)
}

/// Sends until the amount is sent or `stop` is set, then waits for answers. Returns the time by which the schedule was put off.
fn send_all(probes: &impl Probes, account: &Shared, asked: &RttParameters, seed: u64, stop: &AtomicBool) -> Nanos {
    let start = monotonic();
    let mut schedule = Schedule::new(start, Nanos(asked.interval_ns), asked.poisson.then_some(seed));
    let end = match asked.amount {
        Amount::DurationNs(ns) => start.saturating_add(Nanos(ns)),
        _ => Nanos::MAX,
    };
    let most = asked.probes().unwrap_or(u64::MAX);
    let mut sent = 0;
    while sent < most && schedule.due() < end {
        while !stop.load(Ordering::Relaxed) && !wait(schedule.due()) {}
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
        schedule.sent(monotonic());
    }
    let over = monotonic().saturating_add(Nanos(asked.timeout_ns));
    while monotonic() < over && !account.with(|account| account.all_answered()) {
        sleep_until(monotonic() + STOP_LOOK);
    }
    sleep_until((monotonic() + COPIES_COME).min(over));
    schedule.skipped()
}

/// Waits towards `due`, not longer than until the next look at whether to stop. Whether it is due.
fn wait(due: Nanos) -> bool {
    let now = monotonic();
    let early = due.saturating_sub(RISE_EARLY);
    if early > now {
        sleep_until(early.min(now + STOP_LOOK));
        return false;
    }
    while monotonic() < due {
        std::hint::spin_loop();
    }
    true
}
