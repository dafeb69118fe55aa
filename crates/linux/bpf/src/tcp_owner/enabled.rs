//! [`TcpOwners`]: loads the program, attaches it, reads its events.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use super::OwnerEvent;
use crate::BpfError;
use crate::skeleton::tcp_owner::TcpOwnerSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "tcp_owner";
/// Events taken out of the ring at a time.
const BATCH: usize = 1024;

/// Tells who opens and closes TCP connections, until it is dropped. A process that is killed leaves nothing in the kernel.
pub struct TcpOwners {
    // First, so that the program is freed before its maps.
    _link: Link,
    counters: MapHandle,
    ring: RingBuffer<'static>,
    /// Filled by the ring's callback.
    inbox: Arc<Mutex<Vec<OwnerEvent>>>,
}

impl fmt::Debug for TcpOwners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TcpOwners")
    }
}

impl TcpOwners {
    /// Tells of the network namespace with inode `namespace_inode` (that in `net:[…]`), from now on.
    ///
    /// # Errors
    /// [`BpfError::NoBtf`], [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`].
    pub fn attach(namespace_inode: u32) -> Result<Self, BpfError> {
        KernelTypes::read()?;
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = TcpOwnerSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.netns_inum = namespace_inode;
            }
            open.load()
        });
        let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
        let counters = MapHandle::try_from(&skeleton.maps.bss).map_err(|error| step("hold a map", error))?;
        let events = MapHandle::try_from(&skeleton.maps.events).map_err(|error| step("hold a map", error))?;
        let link = skeleton
            .progs
            .on_state
            .attach()
            .map_err(|error| step("attach the tracepoint sock:inet_sock_set_state", error))?;
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let ring = ring_into(&events, Arc::clone(&inbox)).map_err(|error| step("map the event ring", error))?;
        Ok(Self { _link: link, counters, ring, inbox })
    }

    /// Calls `each` for the events that wait, in the order in which they happened. Never waits.
    pub fn drain(&mut self, mut each: impl FnMut(OwnerEvent)) {
        while self.ring.consume_raw_n(BATCH) > 0 {
            self.inbox.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(&mut each);
        }
    }

    /// Events that were lost, as the ring was read too seldom.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn lost_events(&self) -> io::Result<u64> {
        let value = self.counters.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        Ok(value.unwrap_or_default().first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }
}

fn ring_into(events: &MapHandle, inbox: Arc<Mutex<Vec<OwnerEvent>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(events, move |bytes| {
        inbox.lock().unwrap_or_else(PoisonError::into_inner).extend(OwnerEvent::parse(bytes));
        0
    })?;
    builder.build()
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
