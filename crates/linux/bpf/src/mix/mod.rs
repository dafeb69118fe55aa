//! Frames that the kernel makes and sends as a driver does: XDP live frames.
//!
//! [`LiveFrames`] has a program that writes one frame of a mix in each run, and runs it as often as asked. The frames pass no
//! socket. On a veth they arrive at the far end as from a NIC's driver, so that a receiver that drops them early saves all that the
//! stack would spend. On a NIC whose driver can send for XDP they leave through its wire.
//!
//! Needs Linux 5.18, root, and NAPI at the far end of a veth: an XDP program there, or `gro on`.

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::LiveFrames;
#[cfg(bpf_programs)]
pub use enabled::LiveFrames;

/// The most templates.
pub const MAX_TEMPLATES: usize = 4096;
/// The longest frame, in bytes without FCS.
pub const MAX_FRAME_BYTES: usize = 1528;

/// A frame that can be sent, without FCS.
#[derive(Debug, Clone, Copy)]
pub struct LiveTemplate<'a> {
    /// At most [`MAX_FRAME_BYTES`].
    pub bytes: &'a [u8],
    /// Offset of the probe header, behind that of UDP; the template has zeros there. `None`: not numbered.
    pub probe_at: Option<usize>,
}

/// How to make and send frames.
#[derive(Debug, Clone, Copy)]
pub struct LiveOptions<'a> {
    /// The interface of the calling thread's network namespace to send through; 0: none, to measure what making frames costs.
    pub ifindex: u32,
    /// An interface of the calling thread's namespace, without traffic, to which the program is also attached. The kernel would put an
    /// unattached program into its XDP dispatcher for each run and remove it afterwards, and would wait for all CPUs both times:
    /// some 25 ms for each run.
    pub anchor: Option<u32>,
    /// At most [`MAX_TEMPLATES`].
    pub templates: &'a [LiveTemplate<'a>],
    /// One column of the alias table for each template: threshold and other choice.
    pub columns: &'a [(u32, u32)],
    /// The seed of all choices.
    pub seed: u64,
    /// The cookie of all probe headers.
    pub cookie: u32,
    /// The CPUs of the sending threads. Of `n` CPUs, the thread on the `i`-th makes the frames `i`, `i + n`, …. Empty: one thread on any CPU.
    pub cpus: &'a [usize],
}

/// Counts of the frames so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveState {
    /// Frames that were made; the number of the next one.
    pub made: u64,
    /// Frames of the stream among them; the sequence number of the next one.
    pub sequence: u64,
    /// Frames that could not be made; 0 in practice.
    pub broken: u64,
    /// The driver's error for refused frames, an errno; 0 where it gave none.
    pub last_error: i32,
    /// Frames that the interface took, by template; it refused the rest of those made.
    pub sent: Vec<u64>,
}
