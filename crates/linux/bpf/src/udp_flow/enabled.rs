//! [`UdpFlows`]: loads and attaches the programs, reads their maps.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::{UdpDropSum, UdpFlow, UdpUse};
use crate::BpfError;
use crate::drops::ReasonNames;
use crate::program::LoadedProgram;
use crate::skeleton::udp_flow::UdpFlowSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "udp_flow";

/// Counts the datagrams of all UDP sockets of a network namespace, until it is dropped. A process that is killed leaves nothing in the
/// kernel.
pub struct UdpFlows {
    // First, so that the programs are freed before their maps.
    links: Vec<Link>,
    sockets: MapHandle,
    flows: MapHandle,
    drops: MapHandle,
    ports: MapHandle,
    counters: MapHandle,
    reasons: ReasonNames,
    tells_lengths: bool,
}

impl fmt::Debug for UdpFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UdpFlows")
    }
}

impl UdpFlows {
    /// Counts in the network namespace with inode `namespace_inode` (that in `net:[…]`), from now on.
    ///
    /// # Errors
    /// [`BpfError::NoBtf`], [`BpfError::NoDropReason`], [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`].
    pub fn attach(namespace_inode: u32) -> Result<Self, BpfError> {
        let types = KernelTypes::read()?;
        let receiving_socket = types.drop_tells_receiving_socket()?;
        // Since Linux 6.3.
        let tells_lengths = types.has_tracepoint("btf_trace_sock_recv_length");
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = UdpFlowSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.has_receiving_socket = receiving_socket;
                constants.netns_inum = namespace_inode;
            }
            open.progs.on_read.set_autoload(tells_lengths);
            open.progs.on_use.set_autoload(tells_lengths);
            open.load()
        });
        let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
        let handle = |map| MapHandle::try_from(map).map_err(|error| step("hold a map", error));
        let maps = &skeleton.maps;
        let programs = &skeleton.progs;
        let attached = |attach: libbpf_rs::Result<Link>, what| attach.map_err(|error| step(what, error));
        let mut links = vec![
            attached(programs.on_drop.attach(), "attach the tracepoint skb:kfree_skb")?,
            attached(programs.on_arrival.attach(), "attach the tracepoint net:netif_receive_skb")?,
            attached(programs.on_send.attach(), "attach the tracepoint net:net_dev_queue")?,
        ];
        if tells_lengths {
            links.push(attached(programs.on_read.attach(), "attach the tracepoint sock:sock_recv_length")?);
            links.push(attached(programs.on_use.attach(), "attach the tracepoint sock:sock_send_length")?);
        }
        Ok(Self {
            links,
            sockets: handle(&maps.sockets)?,
            flows: handle(&maps.flows)?,
            drops: handle(&maps.drops)?,
            ports: handle(&maps.ports)?,
            counters: handle(&maps.bss)?,
            reasons: types.drop_reasons(),
            tells_lengths,
        })
    }

    /// Counts the drops of this port too, which a socket had before the programs were attached.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn add_port(&self, port: u16) -> io::Result<()> {
        self.ports.update(&port.to_ne_bytes(), &[1], MapFlags::ANY).map_err(|error| io_error(&error))
    }

    /// What [`UdpDropSum::reason`] means.
    pub fn reason_names(&self) -> &ReasonNames {
        &self.reasons
    }

    /// The datagrams so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn flows(&self) -> io::Result<Vec<UdpFlow>> {
        read(&self.flows, UdpFlow::parse)
    }

    /// The drops so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn drops(&self) -> io::Result<Vec<UdpDropSum>> {
        read(&self.drops, UdpDropSum::parse)
    }

    /// What the sockets' programs did so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn sockets(&self) -> io::Result<Vec<UdpUse>> {
        read(&self.sockets, UdpUse::parse)
    }

    /// Whether what programs read is known, and by which process: since Linux 6.3.
    pub fn tells_reads(&self) -> bool {
        self.tells_lengths
    }

    /// Forgets sockets and the datagrams of ports, but for those to keep: there is room for so many.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn keep_only(&self, socket: impl Fn(u64) -> bool, port: impl Fn(u16) -> bool) -> io::Result<()> {
        forget(&self.flows, |key| !port(UdpFlow::parse(key, &[]).local_port));
        forget(&self.drops, |key| !port(UdpDropSum::parse(key, &[]).local_port));
        forget(&self.sockets, |key| !socket(UdpUse::parse(key, &[]).cookie));
        Ok(())
    }

    /// Datagrams and drops that were not counted: there were too many sockets, peers or kinds, or an interrupt came while a program dealt with
    /// another.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn uncounted(&self) -> io::Result<u64> {
        let value = self.counters.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        let mut uncounted =
            value.unwrap_or_default().first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes));
        for link in &self.links {
            let program = link.info().map_err(|error| io_error(&error))?.prog_id;
            uncounted += LoadedProgram::find(program)?.recursion_misses;
        }
        Ok(uncounted)
    }
}

/// Deletes the keys that `is_over` says. A walk begins anew where the key at which it is was deleted, so all are read before.
fn forget(map: &MapHandle, is_over: impl Fn(&[u8]) -> bool) {
    let over: Vec<Vec<u8>> = keys(map).filter(|key| is_over(key)).collect();
    for key in over {
        let _ = map.delete(&key);
    }
}

/// The keys; no more than there is room for, however many come and go meanwhile.
fn keys(map: &MapHandle) -> impl Iterator<Item = Vec<u8>> + '_ {
    map.keys().take(map.max_entries() as usize)
}

fn read<T>(map: &MapHandle, parse: impl Fn(&[u8], &[u8]) -> T) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    for key in keys(map) {
        // It may have gone meanwhile.
        if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(|error| io_error(&error))? {
            all.push(parse(&key, &value));
        }
    }
    Ok(all)
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
