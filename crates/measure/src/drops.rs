//! Loss packet by packet: the kernel's drop events of this test at this end.
//!
//! Only events of this host's own network namespace count here: those of the other end are its own to tell, and what lies
//! between them on the same machine (an emulator) is the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longhaul_bpf::BpfError;
use longhaul_bpf::drops::{DropEvent, DropOptions, Drops, Flow, HostRole, Place, place};
use longhaul_bpf::symbols::Symbols;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_session::locate::{Evidence, Location};
use longhaul_wire::probe::Cookie;

/// How often events are read.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Of the packets that this end sent, each stream.
    pub(crate) sent: Vec<Evidence>,
    /// Of the packets that were sent to it.
    pub(crate) received: Vec<Evidence>,
    /// Whether no event was missed.
    pub(crate) complete: bool,
}

/// Watches for drops until it is finished.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Watch {
    /// Watches `flows` of a test with `streams` streams. `backward_is_ours`: this end is the server, whose packets go backward.
    ///
    /// # Errors
    /// Where the kernel or the user's rights do not allow it.
    pub(crate) fn start(flows: &[Flow], streams: u8, backward_is_ours: bool) -> Result<Self, BpfError> {
        let drops = Drops::attach(flows, &DropOptions::default())?;
        let stop: Arc<AtomicBool> = Arc::default();
        let watch = Watching {
            drops,
            // Without names of functions most reasons still say enough.
            symbols: Symbols::read().ok(),
            namespace: NetNamespace::current().and_then(|own| own.inode()).ok(),
            backward_is_ours,
        };
        let stopped = Arc::clone(&stop);
        // Without a thread there is no evidence: the losses then stay unexplained.
        let thread = Builder::new().name("drops".into()).spawn(move || watch.run(streams, &stopped)).ok();
        Ok(Self { stop, thread })
    }

    /// Stops watching and says what was seen.
    pub(crate) fn finish(mut self) -> Seen {
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
    drops: Drops,
    symbols: Option<Symbols>,
    namespace: Option<u64>,
    backward_is_ours: bool,
}

impl Watching {
    fn run(mut self, streams: u8, stop: &AtomicBool) -> Seen {
        let none = || (0..streams).map(|_| Evidence::default()).collect();
        let mut seen = Seen { sent: none(), received: none(), complete: true };
        let names = self.drops.reason_names().clone();
        let (symbols, namespace, backward_is_ours) = (self.symbols.take(), self.namespace, self.backward_is_ours);
        loop {
            // Read before the look at `stop`, so that the last events are not missed.
            let stopping = stop.load(Ordering::Relaxed);
            self.drops.drain(|event| {
                if foreign(&event, namespace) {
                    return;
                }
                let cookie = Cookie(event.cookie);
                let sent = cookie.is_backward() == backward_is_ours;
                let (evidence, role) =
                    if sent { (&mut seen.sent, HostRole::Sender) } else { (&mut seen.received, HostRole::Receiver) };
                let symbol = symbols.as_ref().and_then(|symbols| symbols.name(event.location)).unwrap_or("");
                let reason = names.name(event.reason);
                if let Some(evidence) = evidence.get_mut(usize::from(cookie.stream()))
                    && let Some(place) = place(&reason, symbol, role, event.transmitting)
                {
                    let why = if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") };
                    add(evidence, &event, location(place), &why);
                }
            });
            if stopping {
                seen.complete = self.drops.lost().is_ok_and(|lost| lost.is_none());
                return seen;
            }
            if self.drops.wait(READ_INTERVAL).is_err() {
                seen.complete = false;
                return seen;
            }
        }
    }
}

/// Whether the event happened in another namespace than ours. What a task's namespace says of a socket that is being freed is
/// not that socket's.
fn foreign(event: &DropEvent<'_>, own: Option<u64>) -> bool {
    !event.namespace_of_task && event.namespace_inode.zip(own).is_some_and(|(inode, own)| u64::from(inode) != own)
}

fn add(evidence: &mut Evidence, event: &DropEvent<'_>, location: Location, why: &str) {
    let mut run: Option<(u64, u64)> = None;
    for sequence in event.sequences() {
        run = match run {
            Some((first, count)) if first + count == sequence => Some((first, count + 1)),
            before => {
                if let Some((first, count)) = before {
                    evidence.add(first, count, location, why, event.unit_packets);
                }
                Some((sequence, 1))
            }
        };
    }
    if let Some((first, count)) = run {
        evidence.add(first, count, location, why, event.unit_packets);
    }
}

fn location(place: Place) -> Location {
    match place {
        Place::SenderSocket => Location::SenderSocket,
        Place::SenderStack => Location::SenderStack,
        Place::SenderQdisc => Location::SenderQdisc,
        Place::SenderDevice => Location::SenderDevice,
        Place::Network => Location::Network,
        Place::ReceiverRing => Location::ReceiverRing,
        Place::ReceiverBacklog => Location::ReceiverBacklog,
        Place::ReceiverFilter => Location::ReceiverFilter,
        Place::ReceiverStack => Location::ReceiverStack,
        Place::ReceiverSocketBuffer => Location::ReceiverSocketBuffer,
        Place::ReceiverApplication => Location::ReceiverApplication,
    }
}
