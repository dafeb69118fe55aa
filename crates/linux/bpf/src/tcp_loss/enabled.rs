//! [`TcpLoss`]: loads and attaches the programs, gives them connections, reads their sums.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::{MAX_CONNECTIONS, TcpAgain, TcpDropSum};
use crate::BpfError;
use crate::drops::ReasonNames;
use crate::program::LoadedProgram;
use crate::skeleton::tcp_loss::TcpLossSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "tcp_loss";
const FROM_HERE: u32 = 1;
const TASKS_NAMESPACE: u32 = 2;
const SOCKETS_OWN: u32 = 8;

/// Watches the losses of some TCP connections, until it is dropped. A process that is killed leaves nothing in the kernel.
pub struct TcpLoss {
    // First, so that the programs are freed before their maps.
    links: [Link; 2],
    connections: MapHandle,
    drops: MapHandle,
    retransmitted: MapHandle,
    counters: MapHandle,
    reasons: ReasonNames,
}

impl fmt::Debug for TcpLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpLoss").finish_non_exhaustive()
    }
}

impl TcpLoss {
    /// Attaches the programs; they watch nothing until [`Self::follow`].
    ///
    /// # Errors
    /// [`BpfError::NoBtf`], [`BpfError::NoDropReason`], [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`].
    pub fn attach() -> Result<Self, BpfError> {
        let types = KernelTypes::read()?;
        let receiving_socket = types.drop_tells_receiving_socket()?;
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = TcpLossSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.has_receiving_socket = receiving_socket;
            }
            open.load()
        });
        let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
        let handle = |map| MapHandle::try_from(map).map_err(|error| step("hold a map", error));
        let (connections, drops) = (handle(&skeleton.maps.connections)?, handle(&skeleton.maps.drops)?);
        let (retransmitted, counters) = (handle(&skeleton.maps.retransmitted)?, handle(&skeleton.maps.bss)?);
        let links = [
            skeleton.progs.on_drop.attach().map_err(|error| step("attach the tracepoint skb:kfree_skb", error))?,
            skeleton
                .progs
                .on_retransmit
                .attach()
                .map_err(|error| step("attach the tracepoint tcp:tcp_retransmit_skb", error))?,
        ];
        Ok(Self { links, connections, drops, retransmitted, counters, reasons: types.drop_reasons() })
    }

    /// Watches the connection from `local` to `remote` as number `connection`, below [`MAX_CONNECTIONS`].
    ///
    /// # Errors
    /// Where the number is too large, or those of bpf(2).
    pub fn follow(&self, connection: u32, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        if connection >= MAX_CONNECTIONS {
            let text = format!("connection {connection}: at most {MAX_CONNECTIONS} are watched");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let put = |map: &MapHandle, key: &[u8], value: &[u8]| {
            map.update(key, value, MapFlags::ANY).map_err(|error| io_error(&error))
        };
        put(&self.retransmitted, &connection.to_ne_bytes(), &[0; 24])?;
        put(&self.connections, &tuple(local, remote), &(connection << 1 | FROM_HERE).to_ne_bytes())?;
        put(&self.connections, &tuple(remote, local), &(connection << 1).to_ne_bytes())
    }

    /// What [`TcpDropSum::reason`] means.
    pub fn reason_names(&self) -> &ReasonNames {
        &self.reasons
    }

    /// The drops so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn drops(&self) -> io::Result<Vec<TcpDropSum>> {
        let mut sums = Vec::new();
        for key in self.drops.keys() {
            let Some(value) = self.drops.lookup(&key, MapFlags::ANY).map_err(|error| io_error(&error))? else {
                continue;
            };
            let u64_at =
                |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            let u32_at = |at: usize| key[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
            // struct kind
            let flags = u32_at(20);
            sums.push(TcpDropSum {
                location: u64_at(&key, 0),
                connection: u32_at(8),
                reason: u32_at(12),
                namespace_inode: Some(u32_at(16)).filter(|inode| *inode != 0),
                from_here: flags & FROM_HERE != 0,
                namespace_of_task: flags & TASKS_NAMESPACE != 0,
                by_socket: flags & SOCKETS_OWN != 0,
                packets: u64_at(&value, 0),
                bytes: u64_at(&value, 8),
            });
        }
        Ok(sums)
    }

    /// What `connection` has retransmitted so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn retransmitted(&self, connection: u32) -> io::Result<TcpAgain> {
        let value =
            self.retransmitted.lookup(&connection.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        let value = value.unwrap_or_default();
        let (words, _) = value.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(TcpAgain { packets: word(0), payload_bytes: word(1), ip_bytes: word(2) })
    }

    /// Drops that were not summed up: of too many kinds, or made by an interrupt while the program dealt with another.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn missed_drops(&self) -> io::Result<u64> {
        let value = self.counters.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        let value = value.unwrap_or_default();
        let lost = value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let mut skipped = 0;
        for link in &self.links {
            let program = link.info().map_err(|error| io_error(&error))?.prog_id;
            skipped += LoadedProgram::find(program)?.recursion_misses;
        }
        Ok(lost + skipped)
    }
}

/// `struct tuple`.
fn tuple(source: SocketAddr, destination: SocketAddr) -> [u8; 36] {
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut bytes = [0; 36];
    bytes[..16].copy_from_slice(&address(source.ip()));
    bytes[16..32].copy_from_slice(&address(destination.ip()));
    bytes[32..34].copy_from_slice(&source.port().to_be_bytes());
    bytes[34..].copy_from_slice(&destination.port().to_be_bytes());
    bytes
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
