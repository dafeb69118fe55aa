//! The two ways in which frames of a mix leave.

use std::io;

use longhaul_bpf::BpfError;
use longhaul_bpf::mix::{LiveFrames, LiveOptions, LiveState, LiveTemplate};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{LinkError, Netlink, VethEnd};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::packet::{OpenError, OutgoingFrame, PacketSocket, Refusal, SendError, VNET_HEADER_BYTES};
use longhaul_kernel::wait::writable_until;
use longhaul_mix::{Numbering, Plan};
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, Probe};
use serde::Serialize;

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
pub(super) struct Counts {
    pub(super) made: u64,
    pub(super) sequence: u64,
    pub(super) sent: Vec<u64>,
}

#[derive(Debug)]
pub(super) enum Engine {
    Live {
        frames: LiveFrames,
        made: u64,
        /// With the interface that the program is anchored to.
        _apart: NetNamespace,
    },
    Socket {
        socket: PacketSocket,
        counts: Counts,
        numbered: Vec<Vec<u8>>,
    },
}

impl Engine {
    pub(super) fn open(kind: EngineKind, ifindex: u32, plan: &Plan) -> Result<Self, EngineError> {
        match kind {
            EngineKind::LiveFrames => live(ifindex, plan),
            EngineKind::PacketSocket => Ok(Self::Socket {
                socket: PacketSocket::open_to_send(ifindex)?,
                counts: Counts { sent: vec![0; plan.templates.len()], ..Counts::default() },
                numbered: vec![Vec::new(); BATCH],
            }),
        }
    }

    /// Frames are made and dropped.
    pub(super) fn into_nothing(plan: &Plan) -> Result<Self, EngineError> {
        let (frames, apart) = load(0, plan)?;
        frames.run(1).map_err(EngineError::NoLiveFrames)?;
        Ok(Self::Live { frames, made: 1, _apart: apart })
    }

    pub(super) fn kind(&self) -> EngineKind {
        match self {
            Self::Live { .. } => EngineKind::LiveFrames,
            Self::Socket { .. } => EngineKind::PacketSocket,
        }
    }

    /// Frames so far, taken by the interface or not.
    pub(super) fn made(&self) -> u64 {
        match self {
            Self::Live { made, .. } => *made,
            Self::Socket { counts, .. } => counts.made,
        }
    }

    pub(super) fn counts(&self) -> io::Result<Counts> {
        match self {
            Self::Live { frames, .. } => {
                let LiveState { made, sequence, sent, .. } = frames.state()?;
                Ok(Counts { made, sequence, sent })
            }
            Self::Socket { counts, .. } => Ok(counts.clone()),
        }
    }

    /// Sends the next `frames` frames, or fewer where a signal comes.
    pub(super) fn send(&mut self, plan: &Plan, frames: u32) -> io::Result<()> {
        match self {
            Self::Live { frames: live, made, .. } => match live.run(frames) {
                Ok(()) => {
                    *made += u64::from(frames);
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    *made = live.state()?.made;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Self::Socket { socket, counts, numbered } => {
                let mut left = frames as usize;
                while left > 0 {
                    let batch = left.min(BATCH);
                    send_batch(socket, plan, counts, numbered, batch)?;
                    left -= batch;
                }
                Ok(())
            }
        }
    }
}

/// The program, ready to send by the interface `ifindex` (0: by none), and where it is anchored.
fn load(ifindex: u32, plan: &Plan) -> Result<(LiveFrames, NetNamespace), EngineError> {
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
    };
    let frames = apart.enter(|| LiveFrames::load(&options))??;
    Ok((frames, apart))
}

fn live(ifindex: u32, plan: &Plan) -> Result<Engine, EngineError> {
    let (frames, apart) = load(ifindex, plan)?;
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
    Ok(Engine::Live { frames, made: state.made, _apart: apart })
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

/// Sends the next `batch` frames in one system call, or in several where one is refused.
fn send_batch(
    socket: &PacketSocket,
    plan: &Plan,
    counts: &mut Counts,
    numbered: &mut [Vec<u8>],
    batch: usize,
) -> io::Result<()> {
    let mut choices = [0; BATCH];
    for (at, choice) in choices[..batch].iter_mut().enumerate() {
        *choice = plan.choice(counts.made + at as u64);
        let template = &plan.templates[*choice];
        if template.numbered {
            let frame = &mut numbered[at];
            frame.clear();
            frame.extend_from_slice(&template.bytes);
            let cookie = plan.target.map_or(Cookie(0), |target| target.cookie);
            Numbering::write(frame, &Probe { cookie, sequence: counts.sequence, sent_ns: monotonic().0 });
            counts.sequence += 1;
        }
    }
    counts.made += batch as u64;
    let mut at = 0;
    while at < batch {
        let frames = (at..batch).map(|at| {
            let template = &plan.templates[choices[at]];
            let bytes: &[u8] = if template.numbered { &numbered[at] } else { &template.bytes };
            OutgoingFrame { vnet: &NO_OFFLOAD, parts: [bytes, &[], &[]] }
        });
        let done = socket.send_batch(frames);
        choices[at..at + done.sent].iter().for_each(|choice| counts.sent[*choice] += 1);
        at += done.sent;
        match done.refusal {
            None => {}
            Some(Refusal::Known(SendError::WouldBlock)) => {
                let until = monotonic().saturating_add(PATIENCE);
                if !writable_until(socket, Some(until))? {
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
