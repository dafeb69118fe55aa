//! Why a congestion control could not be loaded or unloaded, and what to do about it.

use std::io;

use longhaul_congestion::SettingsError;

use crate::BpfError;

/// Why a congestion control could not be loaded or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// BPF programs cannot be used here.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The parameters are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This kernel does not support congestion controls in BPF.
    #[error(
        "this kernel cannot tie a congestion control in BPF to a process (struct_ops links): this needs Linux 6.4 or \
         newer with CONFIG_BPF_JIT=y and IPv4"
    )]
    NoStructOps,
    /// This kernel does not tell a control in BPF what a rate-based one needs.
    #[error("{name} needs Linux 6.10 or newer: rate samples (cong_control) of older kernels have another form")]
    NoRates {
        /// Which control.
        name: &'static str,
    },
    /// The name is taken.
    #[error("{name} is already loaded: unload it with `longhaul cc unload {name}`, or give another name with --as")]
    AlreadyThere {
        /// The name in the kernel.
        name: String,
    },
    /// The BPF file system is not mounted.
    #[error("no BPF file system at /sys/fs/bpf to keep the control in: mount -t bpf -o mode=700 bpf /sys/fs/bpf")]
    NoBpfFs,
    /// longhaul has kept no control with this name.
    #[error("{name} was not loaded by longhaul, or ends with the process that holds it")]
    NotKept {
        /// What was asked for.
        name: String,
    },
    /// A file that keeps a control could not be read, made or removed.
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
