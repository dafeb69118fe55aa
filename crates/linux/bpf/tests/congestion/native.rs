//! The congestion controls compiled natively, on a stand-in for the kernel's socket: for unit tests and simulations, in virtual
//! time. The kernel's side of TCP (recovery, pacing, the scoreboard) is not here: the caller takes its part.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;

use longhaul_congestion::{Algorithm, Settings};

/// Of `icsk_ca_priv`: `STATE_BYTES` in `tcp.h`.
const STATE_WORDS: usize = 13;
/// Of the socket's memory for a control: `LARGE_STATE_WORDS` in `native.h`.
const LARGE_STATE_WORDS: usize = 384;

/// `enum tcp_ca_state`: the kernel's view of the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Nothing wrong.
    Open = 0,
    /// Duplicate ACKs or SACKs.
    Disorder = 1,
    /// ECN or a local drop shrinks the window.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// After a timeout.
    Loss = 4,
}

/// `enum tcp_ca_event`: the events that the controls use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Event {
    /// First packet after nothing was in flight.
    TxStart = 0,
    /// The window is restarted after an idle time.
    CwndRestart = 1,
    /// A recovery is over.
    CompleteCwr = 2,
    /// A timeout.
    Loss = 3,
}

/// The fields of a TCP socket that controls see: `struct tcp_sock` of `native.h`, word for word.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Socket {
    /// Bytes a second.
    pub(crate) pacing_rate: u64,
    /// 0: none, 1: wanted.
    pub(crate) pacing_status: u64,
    /// Bytes a second.
    pub(crate) most_pacing_rate: u64,
    /// Of [`State`]; set by [`Native::set_state`].
    ca_state: u64,
    state: [u64; STATE_WORDS],
    /// The clock, in microseconds.
    pub(crate) time_us: u64,
    /// 1 where the window, not the application, holds the flow back.
    pub(crate) is_cwnd_limited: u32,
    /// Congestion window, packets.
    pub(crate) cwnd: u32,
    /// Packets acknowledged since the window last grew.
    pub(crate) cwnd_cnt: u32,
    /// The largest window.
    pub(crate) cwnd_clamp: u32,
    /// Slow start threshold, packets.
    pub(crate) ssthresh: u32,
    /// The window before the last reduction.
    pub(crate) prior_cwnd: u32,
    /// The most packets in flight in the last window.
    pub(crate) max_packets_out: u32,
    /// Packets delivered in all.
    pub(crate) delivered: u32,
    /// First unacknowledged sequence number.
    pub(crate) snd_una: u32,
    /// Next sequence number to send.
    pub(crate) snd_nxt: u32,
    /// Smoothed RTT, in eighths of a microsecond.
    pub(crate) srtt_8us: u32,
    /// Packets lost in all.
    pub(crate) lost: u32,
    /// Packets sent and not acknowledged cumulatively; those of them that were selectively, that are lost, that were retransmitted.
    pub(crate) packets_out: u32,
    pub(crate) sacked_out: u32,
    pub(crate) lost_out: u32,
    pub(crate) retrans_out: u32,
    /// 0, or what was delivered when the application no longer limits the flow.
    pub(crate) app_limited: u32,
    /// Payload of a segment, bytes.
    pub(crate) mss: u32,
    /// 1 where the other end sends selective acknowledgements.
    pub(crate) sack: u32,
    /// The last random number.
    pub(crate) random: u32,
    large_state: [u64; LARGE_STATE_WORDS],
}

// As `native.h` asserts.
const _: () = assert!(std::mem::offset_of!(Socket, cwnd) == 148 && std::mem::offset_of!(Socket, large_state) == 224);

#[repr(C)]
struct AckSample {
    packets: u32,
    rtt_us: i32,
}

/// `struct rate_sample` of `native.h`: what an ACK says of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(crate) struct RateSample {
    /// Packets delivered when the packet was sent that is acknowledged.
    pub(crate) prior_delivered: u32,
    /// Since then; negative: none.
    pub(crate) delivered: i32,
    /// Time for that; negative: none.
    pub(crate) interval_us: i64,
    /// Negative: none.
    pub(crate) rtt_us: i64,
    /// By this ACK.
    pub(crate) acked: u32,
    /// Before this ACK.
    pub(crate) prior_in_flight: u32,
    /// 1 where the application limited the rate.
    pub(crate) is_app_limited: u32,
}

/// `struct tcp_congestion_ops` of `native.h`.
#[repr(C)]
struct Ops {
    init: Option<unsafe extern "C" fn(*mut Socket)>,
    ssthresh: unsafe extern "C" fn(*mut Socket) -> u32,
    cong_avoid: Option<unsafe extern "C" fn(*mut Socket, u32, u32)>,
    set_state: Option<unsafe extern "C" fn(*mut Socket, u8)>,
    cwnd_event: Option<unsafe extern "C" fn(*mut Socket, u32)>,
    in_ack_event: Option<unsafe extern "C" fn(*mut Socket, u32)>,
    pkts_acked: Option<unsafe extern "C" fn(*mut Socket, *const AckSample)>,
    undo_cwnd: unsafe extern "C" fn(*mut Socket) -> u32,
    cong_control: Option<unsafe extern "C" fn(*mut Socket, u32, i32, *const RateSample)>,
    sndbuf_expand: Option<unsafe extern "C" fn(*mut Socket) -> u32>,
    cwnd_event_tx_start: Option<unsafe extern "C" fn(*mut Socket)>,
    parameters: unsafe extern "C" fn() -> *mut u32,
    parameter_count: u32,
    parameter_names: *const *const std::ffi::c_char,
}

// SAFETY: it is constant; its pointers lead to functions and constants.
unsafe impl Sync for Ops {}

#[allow(non_upper_case_globals, reason = "names of the C sources")]
mod c {
    use super::Ops;
    unsafe extern "C" {
        pub(super) static longhaul_cubic: Ops;
        pub(super) static longhaul_highspeed: Ops;
        pub(super) static longhaul_scalable: Ops;
        pub(super) static longhaul_bic: Ops;
        pub(super) static longhaul_htcp: Ops;
        pub(super) static longhaul_hybla: Ops;
        pub(super) static longhaul_illinois: Ops;
        pub(super) static longhaul_westwood: Ops;
        pub(super) static longhaul_yeah: Ops;
        pub(super) static longhaul_vegas: Ops;
        pub(super) static longhaul_fast: Ops;
        pub(super) static longhaul_compound: Ops;
        pub(super) static longhaul_bbr3: Ops;
    }
}

fn ops(algorithm: Algorithm) -> &'static Ops {
    // SAFETY: each is a constant of its C source with the structure of `native.h`.
    unsafe {
        match algorithm {
            Algorithm::Cubic => &c::longhaul_cubic,
            Algorithm::Highspeed => &c::longhaul_highspeed,
            Algorithm::Scalable => &c::longhaul_scalable,
            Algorithm::Bic => &c::longhaul_bic,
            Algorithm::Htcp => &c::longhaul_htcp,
            Algorithm::Hybla => &c::longhaul_hybla,
            Algorithm::Illinois => &c::longhaul_illinois,
            Algorithm::Westwood => &c::longhaul_westwood,
            Algorithm::Yeah => &c::longhaul_yeah,
            Algorithm::Vegas => &c::longhaul_vegas,
            Algorithm::Fast => &c::longhaul_fast,
            Algorithm::Compound => &c::longhaul_compound,
            Algorithm::Bbr3 => &c::longhaul_bbr3,
        }
    }
}

/// Names and defaults of the parameters in the C source.
pub(crate) fn parameters(algorithm: Algorithm) -> Vec<(String, u32)> {
    let ops = ops(algorithm);
    let count = ops.parameter_count as usize;
    // SAFETY: the C source has as many names, each a constant, and as many values, which nothing else of this thread holds.
    unsafe {
        let names = std::slice::from_raw_parts(ops.parameter_names, count);
        let values = std::slice::from_raw_parts((ops.parameters)(), count);
        names
            .iter()
            .zip(values)
            .map(|(name, value)| (CStr::from_ptr(*name).to_string_lossy().into_owned(), *value))
            .collect()
    }
}

/// A flow under a control. HighSpeed's table is the RFC's, whatever its curve's parameters say.
pub(crate) struct Native {
    ops: &'static Ops,
    values: Vec<u32>,
    /// What the control sees and changes.
    pub(crate) socket: Socket,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Native {
    /// A flow that begins: a window of 10, no limit, no ssthresh, RTT unknown.
    pub(crate) fn new(settings: &Settings) -> Self {
        let socket = Socket {
            pacing_rate: 0,
            pacing_status: 0,
            most_pacing_rate: u64::MAX,
            ca_state: 0,
            state: [0; STATE_WORDS],
            time_us: 1_000_000,
            is_cwnd_limited: 1,
            cwnd: 10,
            cwnd_cnt: 0,
            cwnd_clamp: u32::MAX,
            ssthresh: 0x7fff_ffff,
            prior_cwnd: 0,
            max_packets_out: 10,
            delivered: 0,
            snd_una: 0,
            snd_nxt: 0,
            srtt_8us: 0,
            lost: 0,
            packets_out: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            app_limited: 0,
            mss: 1448,
            sack: 1,
            random: 1,
            large_state: [0; LARGE_STATE_WORDS],
        };
        Self { ops: ops(settings.algorithm()), values: settings.values().to_vec(), socket }
    }

    /// Starts the flow: clears the control's memory and calls it.
    pub(crate) fn init(&mut self) {
        self.socket.state = [0; STATE_WORDS];
        let init = self.ops.init;
        // SAFETY: see `call`.
        self.call(|socket| init.into_iter().for_each(|init| unsafe { init(socket) }));
    }

    /// An ACK for `packets`; what was sent until now is acknowledged up to `ack`. As in the kernel: the sample of the RTT first, then
    /// the window. `rtt_us`: `None` where the ACK tells none.
    pub(crate) fn acked(&mut self, ack: u32, packets: u32, rtt_us: Option<u32>) {
        self.sample(packets, rtt_us);
        self.grow(ack, packets);
    }

    /// `in_ack_event` and `pkts_acked` alone: an ACK in a recovery.
    pub(crate) fn sample(&mut self, packets: u32, rtt_us: Option<u32>) {
        let Ops { in_ack_event, pkts_acked, .. } = *self.ops;
        let rtt_us = rtt_us.map_or(-1, |rtt| i32::try_from(rtt).unwrap_or(i32::MAX));
        let sample = AckSample { packets, rtt_us };
        // SAFETY: see `call`; the sample lives on.
        self.call(|socket| unsafe {
            in_ack_event.into_iter().for_each(|event| event(socket, 0));
            pkts_acked.into_iter().for_each(|acked| acked(socket, &sample));
        });
    }

    /// `cong_avoid` alone.
    pub(crate) fn grow(&mut self, ack: u32, packets: u32) {
        let cong_avoid = self.ops.cong_avoid;
        // SAFETY: see `call`.
        self.call(|socket| cong_avoid.into_iter().for_each(|avoid| unsafe { avoid(socket, ack, packets) }));
    }

    /// An ACK of which a control that measures rates is told.
    pub(crate) fn control(&mut self, sample: &RateSample) {
        let cong_control = self.ops.cong_control;
        let ack = self.socket.snd_una;
        // SAFETY: see `call`; the sample lives on.
        self.call(|socket| cong_control.into_iter().for_each(|control| unsafe { control(socket, ack, 0, sample) }));
    }

    /// How many times its window the socket buffer holds; `None` where the kernel decides.
    pub(crate) fn buffered_windows(&mut self) -> Option<u32> {
        let expand = self.ops.sndbuf_expand;
        // SAFETY: see `call`.
        self.call(|socket| expand.map(|expand| unsafe { expand(socket) }))
    }

    /// What `rate.h` found of the packet whose ACK came last: what was in flight when it was sent, and what was lost since. `prior_delivered`
    /// of that ACK shows that these are the words.
    pub(crate) fn at_sending(&self, prior_delivered: u32) -> [u32; 2] {
        /// After 128 flights of four words, and two indices.
        const SAMPLE: usize = 128 * 4 + 2;
        let word = |at: usize| (self.socket.large_state[at / 2] >> (32 * (at % 2))) as u32;
        assert_eq!(word(SAMPLE + 2), prior_delivered, "struct sample of rate.h");
        [word(SAMPLE + 7), word(SAMPLE + 8)]
    }

    /// The ssthresh that a loss sets.
    pub(crate) fn ssthresh(&mut self) -> u32 {
        let ssthresh = self.ops.ssthresh;
        // SAFETY: see `call`.
        self.call(|socket| unsafe { ssthresh(socket) })
    }

    /// The kernel changes its view of the flow.
    pub(crate) fn set_state(&mut self, state: State) {
        let set_state = self.ops.set_state;
        // SAFETY: see `call`.
        self.call(|socket| set_state.into_iter().for_each(|set| unsafe { set(socket, state as u8) }));
        self.socket.ca_state = state as u64;
    }

    /// An event happens.
    pub(crate) fn event(&mut self, event: Event) {
        let cwnd_event = self.ops.cwnd_event;
        // SAFETY: see `call`.
        self.call(|socket| cwnd_event.into_iter().for_each(|tell| unsafe { tell(socket, event as u32) }));
    }

    /// [`Event::TxStart`] as Linux 7.1 and newer tell it: by a callback of its own, and by no other.
    pub(crate) fn tx_start_alone(&mut self) {
        let tx_start = self.ops.cwnd_event_tx_start;
        // SAFETY: see `call`.
        self.call(|socket| tx_start.into_iter().for_each(|tell| unsafe { tell(socket) }));
    }

    /// The window after a spurious loss.
    pub(crate) fn undo(&mut self) -> u32 {
        let undo = self.ops.undo_cwnd;
        // SAFETY: see `call`.
        self.call(|socket| unsafe { undo(socket) })
    }

    /// A loss that fast recovery repairs: reduction, recovery, and what follows. In the kernel this takes a round trip; here no time.
    pub(crate) fn lose_packet(&mut self) {
        self.socket.prior_cwnd = self.socket.cwnd;
        self.socket.cwnd_cnt = 0;
        self.socket.ssthresh = self.ssthresh();
        self.set_state(State::Recovery);
        self.socket.cwnd = self.socket.ssthresh;
        self.event(Event::CompleteCwr);
        self.set_state(State::Open);
    }

    /// A timeout: the window falls to one packet.
    pub(crate) fn time_out(&mut self) {
        self.socket.prior_cwnd = self.socket.cwnd;
        self.socket.ssthresh = self.ssthresh();
        self.event(Event::Loss);
        self.socket.cwnd = 1;
        self.socket.cwnd_cnt = 0;
        self.set_state(State::Loss);
        self.set_state(State::Open);
    }

    /// Sets the parameters, which are the thread's, and runs a callback.
    ///
    /// A callback takes a pointer to a socket with the structure of `native.h`, which it does not keep, and touches nothing else but
    /// its thread's parameters: so each is sound with the pointer that `callback` gets.
    fn call<T>(&mut self, callback: impl FnOnce(*mut Socket) -> T) -> T {
        // SAFETY: there are as many values as the C source has parameters (a test compares the lists), and nothing else of this
        // thread holds them.
        let parameters =
            unsafe { std::slice::from_raw_parts_mut((self.ops.parameters)(), self.ops.parameter_count as usize) };
        for (parameter, value) in parameters.iter_mut().zip(&self.values) {
            *parameter = *value;
        }
        callback(&raw mut self.socket)
    }
}
