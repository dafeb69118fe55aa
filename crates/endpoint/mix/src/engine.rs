//! The two ways in which frames of a mix leave.

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

/// Frames that go in one system call of a packet socket.
const BATCH: usize = longhaul_kernel::packet::BATCH_MOST;
/// A full send buffer that does not drain so long belongs to a link that sends nothing.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// How often a frame is tried where none is taken, and how long after another.
const PROBES: usize = 20;
const PROBE_GAP: Nanos = Nanos::from_millis(1);
/// A frame that is part of the kernel's own headers only.
const NO_OFFLOAD: [u8; VNET_HEADER_BYTES] = [0; VNET_HEADER_BYTES];

/// How frames are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// XDP live frames: they arrive as from a driver.
    LiveFrames,
    /// A packet socket: they arrive as skbs.
    PacketSocket,
}

/// Why frames cannot be sent in some way.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program that makes frames was refused.
    #[error("{0}")]
    Program(#[from] BpfError),
    /// The kernel does not run it.
    #[error("the kernel has no XDP live frames ({0}): it takes Linux 5.18 or newer")]
    NoLiveFrames(io::Error),
    /// The interface or its far end takes none.
    #[error("the interface takes no XDP frames ({reason})")]
    NotTaken {
        /// What the driver said.
        reason: String,
        /// What would make it take them.
        remedy: String,
    },
    /// There is no namespace for the program to be anchored in.
    #[error("{0}")]
    Namespace(#[from] NamespaceError),
    /// There is no interface there.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// There is no packet socket.
    #[error("{0}")]
    Socket(#[from] OpenError),
    /// It cannot run on a CPU that was asked for.
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

/// What became of the frames so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) made: u64,
    pub(crate) sequence: u64,
    pub(crate) sent: Vec<u64>,
}

/// Sends frames, each thread its share: those with the numbers `share`, `share + shares`, … of the plan.
#[derive(Debug)]
pub(crate) struct Engine {
    /// One for each share; none: there is one, and its thread runs anywhere.
    cpus: Vec<usize>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Live {
        frames: LiveFrames,
        /// Of each share.
        made: Vec<AtomicU64>,
        /// With the interface that the program is anchored to.
        _apart: NetNamespace,
    },
    Socket {
        shares: Vec<Mutex<SocketShare>>,
        /// Of the next frame of the stream.
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
        let way = match kind {
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
                Way::Socket { shares, sequence: AtomicU64::new(0) }
            }
        };
        Ok(Self { cpus: cpus.into(), way })
    }

    /// Frames are made and dropped.
    pub(crate) fn into_nothing(plan: &Plan) -> Result<Self, EngineError> {
        let (frames, apart) = load(0, plan, &[])?;
        frames.run(1).map_err(EngineError::NoLiveFrames)?;
        Ok(Self { cpus: Vec::new(), way: Way::Live { frames, made: vec![AtomicU64::new(1)], _apart: apart } })
    }

    pub(crate) fn kind(&self) -> EngineKind {
        match self.way {
            Way::Live { .. } => EngineKind::LiveFrames,
            Way::Socket { .. } => EngineKind::PacketSocket,
        }
    }

    /// The CPU that a share's thread has to be on, if not any.
    pub(crate) fn cpu(&self, share: usize) -> Option<usize> {
        self.cpus.get(share).copied()
    }

    pub(crate) fn shares(&self) -> usize {
        self.cpus.len().max(1)
    }

    /// Frames of a share so far, taken by the interface or not.
    pub(crate) fn made(&self, share: usize) -> u64 {
        match &self.way {
            Way::Live { made, .. } => made[share].load(Ordering::Relaxed),
            Way::Socket { shares, .. } => locked(&shares[share]).made,
        }
    }

    pub(crate) fn counts(&self) -> io::Result<Counts> {
        match &self.way {
            Way::Live { frames, .. } => {
                let LiveState { made, sequence, sent, .. } = frames.state()?;
                Ok(Counts { made, sequence, sent })
            }
            Way::Socket { shares, sequence } => {
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

    /// Sends the next `frames` frames of a share, or fewer where a signal comes. One thread does so for a share, on its CPU.
    pub(crate) fn send(&self, share: usize, plan: &Plan, frames: u32) -> io::Result<()> {
        match &self.way {
            Way::Live { frames: live, made, .. } => {
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
            Way::Socket { shares, sequence } => {
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
    // Counts stay right whatever panicked while it held the lock.
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program, ready to send by the interface `ifindex` (0: by none) on `cpus`, and where it is anchored.
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

fn live(ifindex: u32, plan: &Plan, cpus: &[usize]) -> Result<Way, EngineError> {
    let (frames, apart) = load(ifindex, plan, cpus)?;
    let _there = cpus.first().map(|cpu| Pinned::to(*cpu)).transpose()?;
    // Nothing less than a frame tells whether frames are taken.
    let mut state = LiveState::default();
    for _ in 0..PROBES {
        frames.run(1).map_err(EngineError::NoLiveFrames)?;
        state = frames.state().map_err(EngineError::NoLiveFrames)?;
        // A ring that others fill refuses frames, too, and gives no error.
        if state.sent.iter().any(|sent| *sent > 0) || state.last_error != 0 {
            break;
        }
        longhaul_kernel::wait::sleep_until(monotonic().saturating_add(PROBE_GAP));
    }
    if state.sent.iter().all(|sent| *sent == 0) {
        let error = match state.last_error {
            0 => "the kernel knows none that would send them".to_owned(),
            error => io::Error::from_raw_os_error(error).to_string(),
        };
        return Err(EngineError::NotTaken { reason: error, remedy: remedy_at(ifindex)? });
    }
    let made = (0..cpus.len().max(1)).map(|share| AtomicU64::new(if share == 0 { state.made } else { 0 })).collect();
    Ok(Way::Live { frames, made, _apart: apart })
}

/// What would make link `ifindex` take XDP frames. Nothing of it is done unasked: a veth's far end is another host's, and to attach a
/// program to a NIC has many drivers restart it.
fn remedy_at(ifindex: u32) -> Result<String, LinkError> {
    let mut netlink = Netlink::open()?;
    let link = netlink.link_by_index(ifindex)?;
    Ok(match (link.kind.as_deref(), link.peer) {
        (Some("veth"), Some(peer)) if link.peer_namespace.is_none() => {
            format!("`ethtool -K {} gro on` at its far end", netlink.link_by_index(peer)?.name)
        }
        (Some("veth"), peer) => {
            let number = peer.map_or(String::new(), |peer| format!(", link {peer} there"));
            format!("`ethtool -K IF gro on` in the network namespace of its far end{number}")
        }
        (None, _) => format!(
            "a driver that sends for XDP; most do so only while a program is attached: `longhaul filter attach {}` has one that counts",
            link.name
        ),
        (Some(kind), _) => format!("name a NIC or a veth; {} is a {kind}", link.name),
    })
}

/// A namespace with a veth pair that nobody uses, and one of its ends.
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

/// Sends the next `batch` frames of a share in one system call, or in several where one is refused. Their numbers are `first` and each
/// `step` on.
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
            // It was dropped on its way: to send it again would be another frame.
            Some(Refusal::Unknown | Refusal::Known(SendError::FarPortFull)) => at += 1,
            Some(Refusal::Known(error)) => return Err(io::Error::other(error)),
        }
    }
    Ok(())
}
