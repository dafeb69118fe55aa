//! Why an interface could not be filtered, and what to do about it.

use std::io;

use crate::BpfError;

/// Why an interface could not be filtered.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// BPF programs cannot be used here.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// XDP programs cannot look at the interface.
    #[error(
        "XDP programs of this kernel cannot read their interface (bpf_cast_to_kern_ctx): this needs Linux 6.2 or newer"
    )]
    NoKernelContext,
    /// Another XDP program is attached.
    #[error(
        "interface {ifindex} has an XDP program already: {name} (id {id}); it stays, as it is not ours to take away: \
         `ip link set dev … xdp off` detaches one that was attached by iproute2"
    )]
    OtherProgram {
        /// The link.
        ifindex: u32,
        /// The program's number in the kernel.
        id: u32,
        /// Its name; empty where it has none.
        name: String,
    },
    /// No filter is attached.
    #[error("interface {ifindex} has no filter of longhaul")]
    NotThere {
        /// The link.
        ifindex: u32,
    },
    /// The interface takes no XDP program.
    #[error("cannot attach the filter to interface {ifindex}: native: {native}; generic: {generic}")]
    Refused {
        /// The link.
        ifindex: u32,
        /// Why not in the driver.
        native: String,
        /// Why not in the stack.
        generic: String,
    },
    /// The filter cannot be kept: the BPF file system is not mounted.
    #[error(
        "/sys/fs/bpf is not a BPF file system, so the filter cannot be kept: mount -t bpf -o mode=700 bpf /sys/fs/bpf"
    )]
    NoBpfFs,
    /// The file that keeps the filter could not be made or removed.
    #[error("cannot {step} {path}: {source}")]
    Keep {
        /// What was being done.
        step: &'static str,
        /// The file.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
}
