//! Why a congestion control could not be loaded or unloaded, and what to do about it.

use std::io;

use longhaul_congestion::SettingsError;

use crate::BpfError;

/// Why a congestion control could not be loaded or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// What any BPF program needs is missing.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The parameters cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This kernel takes no congestion control in BPF.
    #[error(
        "this kernel takes no congestion control in BPF that goes with its process (struct_ops links): it takes Linux 6.4 or newer with \
         CONFIG_BPF_JIT=y and IPv4"
    )]
    NoStructOps,
    /// The name is taken.
    #[error("{name} is already there; `longhaul cc unload {name}` removes one of ours, --as gives another name")]
    AlreadyThere {
        /// The name in the kernel.
        name: String,
    },
    /// There is no file system to pin in.
    #[error("no BPF file system at /sys/fs/bpf, where what is loaded is kept: mount -t bpf bpf /sys/fs/bpf")]
    NoBpfFs,
    /// None of that name was kept by longhaul.
    #[error("{name} was not loaded by longhaul, or goes with the process that holds it")]
    NotKept {
        /// What was asked for.
        name: String,
    },
    /// Something about the files that keep controls.
    #[error("cannot {step} {path}: {source}{}", if source.kind() == io::ErrorKind::PermissionDenied { "; run as root" } else { "" })]
    Keep {
        /// What was being done.
        step: &'static str,
        /// To which file.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
}
