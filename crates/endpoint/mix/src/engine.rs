//! The two engines that send the frames of a mix.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_bpf::BpfError;
use longhaul_bpf::mix::{LiveFrames, LiveOptions, LiveState, LiveTemplate};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{LinkError, Netlink, VethEnd};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::packet::{OpenError, OutgoingFrame, PacketSocket, Refusal, SendError, VNET_HEADER_BYTES};
use longhaul_kernel::schedule::{Pinned, ScheduleError};
use longhaul_kernel::wait::writable_until;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, Probe};
use serde::Serialize;

use crate::plan::{Numbering, Plan};

/// The most frames of one system call of a packet socket.
const BATCH: usize = longhaul_kernel::packet::BATCH_MOST;
/// A link whose full send buffer does not drain within this time sends nothing.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// How often to try a frame where the interface takes none, and the time between two tries.
const PROBES: usize = 20;
const PROBE_GAP: Nanos = Nanos::from_millis(1);
/// The offload header of a frame without offloads.
const NO_OFFLOAD: [u8; VNET_HEADER_BYTES] = [0; VNET_HEADER_BYTES];

/// How frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// XDP live frames, which arrive as from a driver.
    LiveFrames,
    /// A packet socket, whose frames arrive as skbs.
    PacketSocket,
}

/// Why an engine cannot send.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel refused the program that makes frames.
    #[error("{0}")]
    Program(#[from] BpfError),
    /// The kernel has no live frames.
    #[error("the kernel has no XDP live frames ({0}): they need Linux 5.18 or newer")]
    NoLiveFrames(io::Error),
    /// The interface or its far end takes no XDP frames.
    #[error("the interface takes no XDP frames ({reason})")]
    NotTaken {
        /// What the driver said.
        reason: String,
        /// What would make the interface take them.
        remedy: String,
    },
    /// The namespace for the program could not be made.
    #[error("{0}")]
    Namespace(#[from] NamespaceError),
    /// The interface in that namespace could not be made, or the target interface could not be read.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The packet socket could not be opened.
    #[error("{0}")]
    Socket(#[from] OpenError),
    /// A thread cannot run on a CPU that was asked for.
    #[error("{0}")]
    Cpu(#[from] ScheduleError),
}

impl EngineError {
    /// What to do about it; empty where nothing helps.
    pub fn remedy(&self) -> &str {
        match self {
            Self::NotTaken { remedy, .. } => remedy,
            _ => "",
        }
    }
}

/// Counts of the frames so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) made: u64,
    pub(crate) sequence: u64,
    pub(crate) sent: Vec<u64>,
}

/// Sends frames. Each thread sends its share: the frames `share`, `share + shares`, … of the plan.
#[derive(Debug)]
pub(crate) struct Engine {
    /// One for each share; empty: one share, whose thread runs on any CPU.
    cpus: Vec<usize>,
    backend: Backend,
}

/// What an engine sends its frames with: one for each [`EngineKind`].
#[derive(Debug)]
enum Backend {
    Live {
        frames: LiveFrames,
        /// Frames of each share that were made.
        made: Vec<AtomicU64>,
        /// Has the interface to which the program is attached.
        _apart: NetNamespace,
    },
    Socket {
        shares: Vec<Mutex<SocketShare>>,
        /// The sequence number of the next frame of the stream.
        sequence: AtomicU64,
    },
}

#[derive(Debug)]
struct SocketShare {
    socket: PacketSocket,
    made: u64,
    sent: Vec<u64>,
    numbered: Vec<Vec<u8>>,
}

impl Engine {
    pub(crate) fn open(kind: EngineKind, ifindex: u32, plan: &Plan, cpus: &[usize]) -> Result<Self, EngineError> {
        let backend = match kind {
            EngineKind::LiveFrames => live(ifindex, plan, cpus)?,
            EngineKind::PacketSocket => {
                let share = |_| {
                    Ok::<_, OpenError>(Mutex::new(SocketShare {
                        socket: PacketSocket::open_to_send(ifindex)?,
                        made: 0,
                        sent: vec![0; plan.templates.len()],
                        numbered: vec![Vec::new(); BATCH],
                    }))
                };
                let shares = (0..cpus.len().max(1)).map(share).collect::<Result<_, _>>()?;
                Backend::Socket { shares, sequence: AtomicU64::new(0) }
            }
        };
        Ok(Self { cpus: cpus.into(), backend })
    }

    /// An engine that makes frames and drops them.
    pub(crate) fn into_nothing(plan: &Plan) -> Result<Self, EngineError> {
        let (frames, apart) = load(0, plan, &[])?;
        frames.run(1).map_err(EngineError::NoLiveFrames)?;
        Ok(Self { cpus: Vec::new(), backend: Backend::Live { frames, made: vec![AtomicU64::new(1)], _apart: apart } })
    }

    pub(crate) fn kind(&self) -> EngineKind {
        match self.backend {
            Backend::Live { .. } => EngineKind::LiveFrames,
            Backend::Socket { .. } => EngineKind::PacketSocket,
        }
    }

    /// The CPU of a share's thread; `None`: any.
    pub(crate) fn cpu(&self, share: usize) -> Option<usize> {
        self.cpus.get(share).copied()
    }

    pub(crate) fn shares(&self) -> usize {
        self.cpus.len().max(1)
    }

    /// Frames of a share so far, including those that the interface refused.
    pub(crate) fn made(&self, share: usize) -> u64 {
        match &self.backend {
            Backend::Live { made, .. } => made[share].load(Ordering::Relaxed),
            Backend::Socket { shares, .. } => locked(&shares[share]).made,
        }
    }

    pub(crate) fn counts(&self) -> io::Result<Counts> {
        match &self.backend {
            Backend::Live { frames, .. } => {
                let LiveState { made, sequence, sent, .. } = frames.state()?;
                Ok(Counts { made, sequence, sent })
            }
            Backend::Socket { shares, sequence } => {
                let mut all = Counts { sequence: sequence.load(Ordering::Relaxed), ..Counts::default() };
                for share in shares {
                    let share = locked(share);
                    all.made += share.made;
                    all.sent.resize(share.sent.len(), 0);
                    all.sent.iter_mut().zip(&share.sent).for_each(|(all, sent)| *all += sent);
                }
                Ok(all)
            }
        }
    }

    /// Sends the next `frames` frames of a share, or fewer where a signal interrupts it. Only the share's thread calls this, on its CPU.
    pub(crate) fn send(&self, share: usize, plan: &Plan, frames: u32) -> io::Result<()> {
        match &self.backend {
            Backend::Live { frames: live, made, .. } => {
                let made = &made[share];
                match live.run(frames) {
                    Ok(()) => made.store(made.load(Ordering::Relaxed) + u64::from(frames), Ordering::Relaxed),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        made.store(live.made(share)?, Ordering::Relaxed);
                    }
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            Backend::Socket { shares, sequence } => {
                let mut left = frames as usize;
                while left > 0 {
                    let batch = left.min(BATCH);
                    let numbers = (share as u64, shares.len() as u64);
                    send_batch(&mut locked(&shares[share]), plan, numbers, sequence, batch)?;
                    left -= batch;
                }
                Ok(())
            }
        }
    }
}

fn locked(share: &Mutex<SocketShare>) -> MutexGuard<'_, SocketShare> {
    // A panic while the lock was held does not make the counts wrong.
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program, ready to send through the interface `ifindex` (0: none) from `cpus`, and the namespace in which it is attached.
fn load(ifindex: u32, plan: &Plan, cpus: &[usize]) -> Result<(LiveFrames, NetNamespace), EngineError> {
    let templates: Vec<LiveTemplate<'_>> = (plan.templates.iter())
        .map(|template| {
            let probe_at = template.numbered.then(|| Numbering::probe_at(&template.bytes));
            LiveTemplate { bytes: &template.bytes, probe_at }
        })
        .collect();
    let columns: Vec<(u32, u32)> = plan.alias.entries().iter().map(|entry| (entry.threshold, entry.other)).collect();
    let (apart, anchor) = anchor()?;
    let options = LiveOptions {
        ifindex,
        anchor: Some(anchor),
        templates: &templates,
        columns: &columns,
        seed: plan.seed,
        cookie: plan.target.map_or(0, |target| target.cookie.0),
        cpus,
    };
    let frames = apart.enter(|| LiveFrames::load(&options))??;
    Ok((frames, apart))
}

fn live(ifindex: u32, plan: &Plan, cpus: &[usize]) -> Result<Backend, EngineError> {
    let (frames, apart) = load(ifindex, plan, cpus)?;
    let _there = cpus.first().map(|cpu| Pinned::to(*cpu)).transpose()?;
    // Only sending a frame shows whether the interface takes frames.
    let mut state = LiveState::default();
    for _ in 0..PROBES {
        frames.run(1).map_err(EngineError::NoLiveFrames)?;
        state = frames.state().map_err(EngineError::NoLiveFrames)?;
        // A ring that other senders fill also refuses frames, without an error.
        if state.sent.iter().any(|sent| *sent > 0) || state.last_error != 0 {
            break;
        }
        longhaul_kernel::wait::sleep_until(monotonic().saturating_add(PROBE_GAP));
    }
    if state.sent.iter().all(|sent| *sent == 0) {
        let error = match state.last_error {
            0 => "the kernel reports no error".to_owned(),
            error => io::Error::from_raw_os_error(error).to_string(),
        };
        return Err(EngineError::NotTaken { reason: error, remedy: remedy_at(ifindex)? });
    }
    let made = (0..cpus.len().max(1)).map(|share| AtomicU64::new(if share == 0 { state.made } else { 0 })).collect();
    Ok(Backend::Live { frames, made, _apart: apart })
}

/// What would make link `ifindex` take XDP frames. longhaul does not do it by itself: the far end of a veth belongs to another host, and
/// many drivers restart a NIC when a program is attached.
fn remedy_at(ifindex: u32) -> Result<String, LinkError> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link_by_index(ifindex)?;
    Ok(match (link.kind.as_deref(), link.peer) {
        (Some("veth"), Some(peer)) if link.peer_namespace.is_none() => {
            format!("`ethtool -K {} gro on` at its far end", netlink.link_by_index(peer)?.name)
        }
        (Some("veth"), peer) => {
            let number = peer.map_or(String::new(), |peer| format!(", interface {peer} there"));
            format!("`ethtool -K IF gro on` in the network namespace of its far end{number}")
        }
        (None, _) => format!(
            "use a driver that sends for XDP; most do so only while a program is attached: `longhaul filter attach {}` attaches one that counts",
            link.name
        ),
        (Some(kind), _) => format!("name a NIC or a veth; {} is a {kind}", link.name),
    })
}

/// A namespace with an unused veth pair, and the index of one end.
fn anchor() -> Result<(NetNamespace, u32), EngineError> {
    let apart = NetNamespace::create()?;
    let end = |name| VethEnd { name, namespace: None, mtu_bytes: None, mac: None };
    let index = apart.enter(|| {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(&end("anchor"), &end("chain"))?;
        netlink.index_of("anchor")
    })??;
    Ok((apart, index))
}

/// Sends the next `batch` frames of a share in one system call, or in several where a frame is refused. Frame numbers begin at `first`
/// and differ by `step`.
fn send_batch(
    share: &mut SocketShare,
    plan: &Plan,
    (first, step): (u64, u64),
    sequence: &AtomicU64,
    batch: usize,
) -> io::Result<()> {
    let SocketShare { socket, made, sent, numbered } = share;
    let mut choices = [0; BATCH];
    for (at, choice) in choices[..batch].iter_mut().enumerate() {
        *choice = plan.choice(first + (*made + at as u64) * step);
        let template = &plan.templates[*choice];
        if template.numbered {
            let frame = &mut numbered[at];
            frame.clear();
            frame.extend_from_slice(&template.bytes);
            let cookie = plan.target.map_or(Cookie(0), |target| target.cookie);
            let sequence = sequence.fetch_add(1, Ordering::Relaxed);
            Numbering::write(frame, &Probe { cookie, sequence, sent_ns: monotonic().0 });
        }
    }
    *made += batch as u64;
    let mut at = 0;
    while at < batch {
        let frames = (at..batch).map(|at| {
            let template = &plan.templates[choices[at]];
            let bytes: &[u8] = if template.numbered { &numbered[at] } else { &template.bytes };
            OutgoingFrame { vnet: &NO_OFFLOAD, parts: [bytes, &[], &[]] }
        });
        let done = socket.send_batch(frames);
        choices[at..at + done.sent].iter().for_each(|choice| sent[*choice] += 1);
        at += done.sent;
        match done.refusal {
            None => {}
            Some(Refusal::Known(SendError::WouldBlock)) => {
                let until = monotonic().saturating_add(PATIENCE);
                if !writable_until(&*socket, Some(until))? {
                    return Err(io::Error::other("the interface sends nothing: its queue stays full"));
                }
            }
            // It was dropped: sending it again would be another frame.
            Some(Refusal::Unknown | Refusal::Known(SendError::FarPortFull)) => at += 1,
            Some(Refusal::Known(error)) => return Err(io::Error::other(error)),
        }
    }
    Ok(())
}
