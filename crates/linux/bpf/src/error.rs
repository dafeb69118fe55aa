//! Why a BPF program could not be used, and what to do about it.

use std::io;

/// Why a BPF program could not be used. Each message says what would help.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// This build has no BPF programs.
    #[error("this build of longhaul has no BPF programs: {why}; then build it again")]
    NotBuilt {
        /// What is missing in the build.
        why: &'static str,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel has no type information at /sys/kernel/btf/vmlinux ({source}): this needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and RHEL are; is /sys mounted?"
    )]
    NoBtf {
        /// What the kernel or the parser said.
        source: io::Error,
    },
    /// The kernel reports drops without a reason, or not at all.
    #[error("the kernel has no tracepoint skb:kfree_skb with a drop reason: this needs Linux 5.17 or newer")]
    NoDropReason,
    /// The caller lacks capabilities.
    #[error(
        "no permission to load BPF programs: {missing} missing; run as root, or give the program these capabilities \
         with setcap(8)"
    )]
    Denied {
        /// The capabilities that the thread lacks, with a verb: `CAP_BPF and CAP_PERFMON are`.
        missing: String,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the BPF program {program}: {source}{log}")]
    Load {
        /// Which one.
        program: &'static str,
        /// What the kernel said.
        source: io::Error,
        /// The end of the log of libbpf and the verifier; empty where there is none.
        log: String,
    },
    /// The program could not be attached, or its maps could not be set up.
    #[error("cannot {step} of the BPF program {program}: {source}")]
    Step {
        /// Which one.
        program: &'static str,
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// There are no flows to watch, or too many.
    #[error("{given} flows to watch: choose 1 to {most}")]
    Flows {
        /// How many were given.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// The kernel does not accept the ring's size.
    #[error("a ring of {bytes} bytes: the size must be a power of two, and at least {least}")]
    RingSize {
        /// What was asked for.
        bytes: u32,
        /// A page, or what one event needs.
        least: u32,
    },
}
