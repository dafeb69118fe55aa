//! Frames that the kernel makes by itself and sends as a driver does: XDP live frames.
//!
//! [`LiveFrames`] has a program that writes one frame of a mix each time it is run, and runs it as often as asked. The frames never were
//! in a socket: on a veth they arrive at the far end as from a NIC's driver, so that what drops them there early saves all that the
//! stack would spend. On a NIC whose driver can send for XDP they leave by its wire.
//!
//! Takes Linux 5.18, root, and at a veth's far end NAPI: an XDP program there, or `gro on`.

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::LiveFrames;
#[cfg(bpf_programs)]
pub use enabled::LiveFrames;

/// Templates at most.
pub const MAX_TEMPLATES: usize = 4096;
/// Bytes of a frame at most, without FCS.
pub const MAX_FRAME_BYTES: usize = 1528;

/// A frame that can be sent, without FCS.
#[derive(Debug, Clone, Copy)]
pub struct LiveTemplate<'a> {
    /// At most [`MAX_FRAME_BYTES`].
    pub bytes: &'a [u8],
    /// Where a probe header goes into it, behind UDP's; there zeros lie.
    pub probe_at: Option<usize>,
}

/// What to make frames of.
#[derive(Debug, Clone, Copy)]
pub struct LiveOptions<'a> {
    /// Through which interface of the calling thread's network namespace; 0: through none, to know what making frames costs.
    pub ifindex: u32,
    /// An interface of the calling thread's namespace that the program is attached to, besides; it is to carry nothing. A program that is
    /// attached nowhere is put into the kernel's XDP dispatcher for each run and taken out after it, and either waits for all CPUs to
    /// pass a quiet state: some 25 ms a run.
    pub anchor: Option<u32>,
    /// At most [`MAX_TEMPLATES`].
    pub templates: &'a [LiveTemplate<'a>],
    /// As many columns of an alias table: threshold and other choice.
    pub columns: &'a [(u32, u32)],
    /// Of all choices.
    pub seed: u64,
    /// Of all probe headers.
    pub cookie: u32,
    /// On which CPUs threads are going to have frames made, each its own share: the frames that have the numbers `i`, `i + n`, … of all,
    /// of `n` CPUs the `i`-th. None: one thread, on any.
    pub cpus: &'a [usize],
}

/// What became of the frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveState {
    /// Frames that were made; the next one has this number.
    pub made: u64,
    /// Of the stream among them; the next one has this sequence.
    pub sequence: u64,
    /// That could not be made, which none should.
    pub broken: u64,
    /// What the driver said of those refused, as an errno; 0 where it said nothing.
    pub last_error: i32,
    /// That the interface took, by template; of the rest of those made it took none.
    pub sent: Vec<u64>,
}
