//! Sending probes on time and keeping their account, however they are sent.

use std::net::{IpAddr, SocketAddr};
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
use super::own_route::RouteWatch;
use super::reading::Reading;
use crate::waking::{EARLY_MOST, Waking};

/// Probes are far apart from this interval on: there the thread does not watch the clock, so that a measurement of weeks costs little of a CPU.
const FAR_APART: Nanos = Nanos::from_millis(5);
/// How often to look whether the measurement was stopped.
const STOP_LOOK: Nanos = Nanos::from_millis(20);
/// How often rows are handed over.
const HAND_OVER: Nanos = Nanos::from_millis(100);
/// How often the socket is read for what came at once.
const READS_MOST: usize = 64;
/// A copy of the last answer may come after it.
const COPIES_COME: Nanos = Nanos::from_millis(100);

/// How probes are sent and answers received. Two threads use it.
pub(super) trait Probes: Send + Sync + 'static {
    /// Sends probe `sequence`, which the program stamped with `program_ns`. What cannot be sent is lost.
    fn send(&self, sequence: u64, program_ns: i64);

    /// Whom it probes, at any port.
    fn peer(&self) -> SocketAddr;

    /// The address that probes are sent from; `None` where each has its own.
    fn own(&self) -> Option<IpAddr> {
        None
    }

    /// The address is gone: sends from the one that this host has now. `false`: the other host knows the old one, and the session is over.
    fn readdress(&self) -> bool {
        false
    }

    /// Whether the kernel stamps what comes, so that it may wait in the socket.
    fn are_stamped(&self) -> bool {
        false
    }

    /// Receives what is there, waiting until `deadline` for something, and enters it into the account. Whether there may be more.
    fn receive(&self, account: &Shared, deadline: Nanos) -> bool;
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
    ending: Arc<Ending>,
    threads: Vec<JoinHandle<()>>,
}

/// Why no more probes are sent.
#[derive(Debug, Default)]
struct Ending {
    stop: AtomicBool,
    /// Answers need not be awaited either.
    none_comes: AtomicBool,
}

/// A time in which this host itself keeps probes from going, or answers from coming.
#[derive(Debug)]
struct Away {
    gap: Option<Gap>,
    looked_ns: i64,
}

impl Away {
    /// Leaves out what is on its way while there is an obstacle. Returns the gap that ends now. `last`: nobody looks again.
    fn look(
        &mut self,
        account: &mut Account,
        obstacle: Option<GapReason>,
        last: bool,
        rows: &mut Vec<ProbeRow>,
    ) -> Option<Gap> {
        let now_ns = realtime_ns();
        let from_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        if let Some(why) = obstacle {
            let new = Gap { why, from_ns, to_ns: now_ns, step_ns: 0, left_out: 0 };
            // An address that goes takes its routes with it.
            self.gap.get_or_insert(new).why = why;
        }
        let gap = self.gap.as_mut()?;
        gap.left_out += account.leave_out(|row| rows.push(row));
        gap.to_ns = now_ns;
        if obstacle.is_none() || last { self.gap.take() } else { None }
    }
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
        let (ending, done) = (Arc::new(Ending::default()), Arc::new(Mutex::new(None)));
        let stalls = Arc::new(Mutex::new(Vec::new()));
        let mut clocks = ClockWatch::new(read_clocks());
        let mut route = RouteWatch::new(probes.peer());
        let mut away = Away { gap: None, looked_ns: realtime_ns() };
        let sending = {
            let (probes, account, parameters) = (probes.clone(), account.clone(), parameters.clone());
            let (ending, done, stalls) = (ending.clone(), done.clone(), stalls.clone());
            Builder::new().name("probe".into()).spawn(move || {
                let stalled = |gap| stalls.lock().unwrap_or_else(PoisonError::into_inner).push(gap);
                let skipped = send_all(&*probes, &account, &parameters, seed, &ending, stalled);
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(skipped);
            })?
        };
        let over = ending.clone();
        let reading = Reading::new(parameters, probes.are_stamped(), monotonic());
        let receiving = Builder::new().name("answers".into()).spawn(move || {
            let mut hand_over = monotonic() + HAND_OVER;
            loop {
                let skipped = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                if skipped.is_none() {
                    reading.let_come(monotonic(), hand_over);
                }
                // Strangers may send without end.
                let _ = (0..READS_MOST).take_while(|_| probes.receive(&account, hand_over)).count();
                let now = monotonic();
                if skipped.is_none() && now < hand_over {
                    continue;
                }
                hand_over = now + HAND_OVER;
                let mut gaps = std::mem::take(&mut *stalls.lock().unwrap_or_else(PoisonError::into_inner));
                let seen = route.look(probes.own());
                let address_gone = seen.obstacle == Some(GapReason::AddressChanged) && !probes.readdress();
                if address_gone {
                    over.none_comes.store(true, Ordering::Relaxed);
                    over.stop.store(true, Ordering::Relaxed);
                }
                observe(account.with(|account| {
                    let mut rows = Vec::new();
                    match clocks.look(read_clocks()) {
                        Some(gap) => gaps.push(Gap { left_out: account.leave_out(|row| rows.push(row)), ..gap }),
                        None => account.sound(),
                    }
                    // Whoever began the session leaves out what its end cost.
                    let obstacle = seen.obstacle.filter(|_| !address_gone);
                    gaps.extend(away.look(account, obstacle, skipped.is_some(), &mut rows));
                    let observed = observed(account, skipped, rows, gaps);
                    let path_changes = account.take_path_changes().into_iter().chain(seen.change).collect();
                    Observed { path_changes, address_gone, ..observed }
                }));
                if skipped.is_some() {
                    return;
                }
            }
        })?;
        Ok(Self { ending, threads: vec![sending, receiving] })
    }

    /// Sends no more; answers are awaited.
    pub(super) fn stop(&self) {
        self.ending.stop.store(true, Ordering::Relaxed);
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
    Observed { rows, recent: account.take_recent(), counts: account.counts(), gaps, ended, ..Observed::default() }
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

/// Sends until the amount is sent or it is to stop, then waits for answers. Tells when the host did not let it send. Returns the time by
/// which the schedule was put off.
fn send_all(
    probes: &impl Probes,
    account: &Shared,
    asked: &RttParameters,
    seed: u64,
    ending: &Ending,
    mut stalled: impl FnMut(Gap),
) -> Nanos {
    let start = monotonic();
    let mut schedule = Schedule::new(start, Nanos(asked.interval_ns), asked.poisson.then_some(seed));
    let end = match asked.amount {
        Amount::DurationNs(ns) => start.saturating_add(Nanos(ns)),
        _ => Nanos::MAX,
    };
    let most = asked.probes().unwrap_or(u64::MAX);
    let mut waking = Waking::new(if asked.interval_ns < FAR_APART.0 { EARLY_MOST } else { Nanos::ZERO });
    let mut sent = 0;
    while sent < most && schedule.due() < end {
        // It sleeps in between.
        while !ending.stop.load(Ordering::Relaxed) {
            if waking.wait(schedule.due()) {
                break;
            }
        }
        if ending.stop.load(Ordering::Relaxed) {
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
    let awaited = || !ending.none_comes.load(Ordering::Relaxed);
    while monotonic() < over && awaited() && !account.with(|account| account.all_answered()) {
        sleep_until(monotonic() + STOP_LOOK);
    }
    if awaited() {
        sleep_until((monotonic() + COPIES_COME).min(over));
    }
    schedule.skipped()
}
