//! [`Drops`]: loads the program, attaches it, reads its events.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::event::{DropEvent, HEADER_BYTES};
use super::{DropOptions, Flow, Lost, MAX_FLOWS, ReasonNames, Unrecorded};
use crate::BpfError;
use crate::program::LoadedProgram;
use crate::skeleton::drops::DropsSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "drops";
/// Why damaged packets are dropped, as `DAMAGE_REASONS` of `intf.h`: wrong checksums, impossible headers, protocols that nobody knows; then, by
/// cookie alone and over IPv6, ports without a socket (the kernel looks for one before it looks at the checksum) and other protocols'
/// checksums.
const DAMAGE: [&str; 7] = ["UDP_CSUM", "IP_CSUM", "IP_INHDR", "IP_NOPROTO", "NO_SOCKET", "TCP_CSUM", "ICMP_CSUM"];
/// A page, the least that the kernel takes, holds the largest event, too.
const LEAST_RING_BYTES: u32 = 4096;
/// Events taken out of the ring at a time, so that what is copied stays small.
const BATCH: usize = 1024;

/// Watches the drops of some flows, until it is dropped. A process that is killed leaves nothing in the kernel.
pub struct Drops {
    // First, so that the program is freed before its maps.
    link: Link,
    /// Of the twin for drops in interrupts of the program, and of those that note first fragments.
    _others: Vec<Link>,
    events: MapHandle,
    counters: MapHandle,
    unrecorded: MapHandle,
    ring: RingBuffer<'static>,
    /// Filled by the ring's callback: length and bytes of each event.
    inbox: Arc<Mutex<Vec<u8>>>,
    ring_bytes: u32,
    reasons: ReasonNames,
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drops").field("ring_bytes", &self.ring_bytes).finish_non_exhaustive()
    }
}

/// What outlives the skeleton: links and maps are descriptors.
struct Attached {
    link: Link,
    others: Vec<Link>,
    events: MapHandle,
    counters: MapHandle,
    unrecorded: MapHandle,
}

impl Drops {
    /// Watches `flows` on the whole machine, in every network namespace.
    ///
    /// Takes some 10 ms, most of it the kernel's verifier.
    ///
    /// # Errors
    /// [`BpfError::Flows`], [`BpfError::RingSize`] for what was asked; [`BpfError::NoBtf`], [`BpfError::NoDropReason`],
    /// [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`] for what the kernel cannot or may not.
    pub fn attach(flows: &[Flow], options: &DropOptions) -> Result<Self, BpfError> {
        if flows.is_empty() || flows.len() > MAX_FLOWS {
            return Err(BpfError::Flows { given: flows.len(), most: MAX_FLOWS });
        }
        if !options.ring_bytes.is_power_of_two() || options.ring_bytes < LEAST_RING_BYTES {
            return Err(BpfError::RingSize { bytes: options.ring_bytes, least: LEAST_RING_BYTES });
        }
        let types = KernelTypes::read()?;
        let receiving_socket = types.drop_tells_receiving_socket()?;
        require_capabilities()?;

        let reasons = types.drop_reasons();
        let damage = DAMAGE.map(|name| reasons.number(name).unwrap_or(0));
        // Kernels before 6.12 know bpf_dynptr_from_skb but refuse it here; only trying tells.
        let attached = match load(flows, options, &damage, receiving_socket, options.paged_payload) {
            Err(BpfError::Load { .. }) if options.paged_payload => {
                load(flows, options, &damage, receiving_socket, false)?
            }
            other => other?,
        };
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let ring =
            ring_into(&attached.events, Arc::clone(&inbox)).map_err(|error| step("map the event ring", error))?;
        let Attached { link, others, events, counters, unrecorded } = attached;
        let ring_bytes = options.ring_bytes;
        Ok(Self { link, _others: others, events, counters, unrecorded, ring, inbox, ring_bytes, reasons })
    }

    /// What [`DropEvent::reason`] means.
    pub fn reason_names(&self) -> &ReasonNames {
        &self.reasons
    }

    /// Waits until there are events, at most `timeout`; says whether there are.
    ///
    /// Who waits is woken when the ring is a quarter full, and sees fewer events when the timeout ends: drops need no haste, and a
    /// wake-up costs more than the event.
    ///
    /// # Errors
    /// As poll(2) has them; an interruption by a signal is none.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut ring = [PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN)];
        // The kernel looks at the ring before it sleeps and when the time is over.
        match poll(&mut ring, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls `each` for the events that wait, in the order of the drops, and says how many there were. Never waits.
    pub fn drain(&mut self, mut each: impl FnMut(DropEvent<'_>)) -> usize {
        // At most a ring's worth, so that it ends where drops come faster than they are read.
        let most = self.ring_bytes as usize / HEADER_BYTES;
        let mut drained = 0;
        while drained < most {
            let taken = self.ring.consume_raw_n(BATCH);
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rest = inbox.as_slice();
            while let Some((length, after)) = rest.split_first_chunk() {
                let (event, after) = after.split_at(usize::from(u16::from_ne_bytes(*length)));
                DropEvent::parse(event).into_iter().for_each(&mut each);
                drained += 1;
                rest = after;
            }
            inbox.clear();
            if taken < BATCH as i32 {
                break;
            }
        }
        drained
    }

    /// Drops of which nothing can be told, since this was attached.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn lost(&self) -> io::Result<Lost> {
        let value = self
            .counters
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| io_error(&error))?
            .unwrap_or_default();
        let (words, _) = value.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let program = self.link.info().map_err(|error| io_error(&error))?.prog_id;
        let skipped_runs = LoadedProgram::find(program)?.recursion_misses;
        // What the twin saw was not missed.
        Ok(Lost { packets: word(0), unread_packets: word(1), skipped_runs: skipped_runs.saturating_sub(word(2)) })
    }

    /// Drops for which the ring had no room, since this was attached.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn unrecorded(&self) -> io::Result<Vec<Unrecorded>> {
        let mut all = Vec::new();
        for key in self.unrecorded.keys() {
            let value = self.unrecorded.lookup(&key, MapFlags::ANY).map_err(|error| io_error(&error))?;
            all.extend(value.and_then(|value| parse_unrecorded(&key, &value)));
        }
        Ok(all)
    }
}

fn load(
    flows: &[Flow],
    options: &DropOptions,
    damage: &[u32; DAMAGE.len()],
    receiving_socket: bool,
    dynptr: bool,
) -> Result<Attached, BpfError> {
    let mut object = MaybeUninit::uninit();
    let (loaded, log) = with_log(|| {
        let mut open = DropsSkelBuilder::default().open(&mut object)?;
        open.maps.events.set_max_entries(options.ring_bytes)?;
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.has_receiving_socket = receiving_socket;
            constants.has_dynptr = dynptr;
            constants.damage_reasons = *damage;
            constants.has_fragments = options.fragments;
            constants.wake_bytes = options.ring_bytes / 4;
            constants.only_namespace = options.namespace_cookie.unwrap_or(0);
            for flow in flows {
                constants.ports[usize::from(flow.port >> 3)] |= 1 << (flow.port & 7);
            }
        }
        open.progs.on_queued.set_autoload(options.fragments);
        open.progs.on_received.set_autoload(options.fragments);
        open.load()
    });
    let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
    for flow in flows {
        // struct flow
        let mut key = [0; 8];
        key[..4].copy_from_slice(&flow.cookie.to_ne_bytes());
        key[4..6].copy_from_slice(&flow.port.to_ne_bytes());
        let filled = |done: libbpf_rs::Result<()>| done.map_err(|error| step("fill the map of flows", error));
        filled(skeleton.maps.flows.update(&key, &[1], MapFlags::ANY))?;
        filled(skeleton.maps.by_cookie.update(&key[..4], &key, MapFlags::ANY))?;
        filled(skeleton.maps.by_port.update(&key[4..6], &key, MapFlags::ANY))?;
    }
    let handle = |map| MapHandle::try_from(map).map_err(|error| step("hold a map", error));
    let (events, counters) = (handle(&skeleton.maps.events)?, handle(&skeleton.maps.bss)?);
    let unrecorded = handle(&skeleton.maps.unrecorded)?;
    let link = skeleton.progs.on_drop.attach().map_err(|error| step("attach the tracepoint skb:kfree_skb", error))?;
    let nested = skeleton.progs.on_nested_drop.attach();
    let mut others = vec![nested.map_err(|error| step("attach the tracepoint skb:kfree_skb twice", error))?];
    if options.fragments {
        let programs = &skeleton.progs;
        others
            .push(programs.on_queued.attach().map_err(|error| step("attach the tracepoint net:net_dev_queue", error))?);
        let received = programs.on_received.attach();
        others.push(received.map_err(|error| step("attach the tracepoint net:netif_receive_skb", error))?);
    }
    Ok(Attached { link, others, events, counters, unrecorded })
}

/// Reads `struct unrecorded_key` and `struct unrecorded`.
fn parse_unrecorded(key: &[u8], value: &[u8]) -> Option<Unrecorded> {
    let u64_at = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(*key.get(at..)?.first_chunk()?));
    Some(Unrecorded {
        location: u64_at(key, 0)?,
        reason: u32_at(8)?,
        cookie: u32_at(12)?,
        units: u64_at(value, 0)?,
        packets: u64_at(value, 8)?,
    })
}

/// A reader that puts each event of `events` behind its length into `inbox`.
fn ring_into(events: &MapHandle, inbox: Arc<Mutex<Vec<u8>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(events, move |bytes| {
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.extend((bytes.len() as u16).to_ne_bytes());
        inbox.extend(bytes);
        0
    })?;
    builder.build()
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
