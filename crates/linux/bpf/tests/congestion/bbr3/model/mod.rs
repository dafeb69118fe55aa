//! BBRv3 in floating point, written from the draft's pseudocode alone, function by function and with its names: draft-ietf-ccwg-bbr-06.
//!
//! Volumes are packets (C.SMSS is one), rates packets a microsecond, times microseconds; a BDP is rounded up to whole packets, and a share of
//! packets is rounded down. What an ACK finds lost is one burst, judged as if sent with the packet that is acknowledged, as in the C; and what was
//! in flight when that was sent is what the C found again of it, which is judged by itself.

mod measures;

use std::collections::VecDeque;

const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
const PACING_MARGIN_PERCENT: f64 = 1.0;
const LOSS_THRESH: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
const MIN_PIPE_CWND: f64 = 4.0;
const STARTUP_FULL_LOSS_COUNT: u32 = 6;
const EXTRA_ACKED_FILTER_LEN: u64 = 10;
const MIN_RTT_FILTER_LEN: f64 = 10e6;
const PROBE_RTT_INTERVAL: f64 = 5e6;
const PROBE_RTT_DURATION: f64 = 200e3;
/// Payload of a segment, bytes.
const SMSS: f64 = 1448.0;
const INITIAL_CWND: f64 = 10.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// C: what the transport knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) now: f64,
    pub(super) srtt: f64,
    pub(super) delivered: u64,
    pub(super) inflight: f64,
    pub(super) is_cwnd_limited: bool,
    pub(super) has_selective_acks: bool,
    /// In fast recovery; in any loss recovery.
    pub(super) in_fast_recovery: bool,
    pub(super) in_loss_recovery: bool,
}

/// RS: what an ACK says.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RateSample {
    /// 0: none.
    pub(super) delivery_rate: f64,
    pub(super) delivered: f64,
    pub(super) prior_delivered: u64,
    pub(super) newly_acked: f64,
    pub(super) rtt: Option<f64>,
    pub(super) prior_in_flight: f64,
    pub(super) tx_in_flight: f64,
    pub(super) lost: f64,
    pub(super) is_app_limited: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    /// The last of the random numbers, which are those of the C.
    random: u32,
    pub(super) state: State,
    pub(super) cwnd: f64,
    /// Bytes a second.
    pub(super) pacing_rate: f64,
    rs: RateSample,
    pub(super) max_bw: f64,
    max_bw_filter: VecDeque<f64>,
    pub(super) bw_shortterm: f64,
    bw: f64,
    pub(super) min_rtt: f64,
    min_rtt_stamp: f64,
    pub(super) inflight_longterm: f64,
    pub(super) inflight_shortterm: f64,
    bw_latest: f64,
    inflight_latest: f64,
    extra_acked_interval_start: f64,
    extra_acked_delivered: f64,
    extra_acked_filter: VecDeque<(u64, f64)>,
    pub(super) extra_acked: f64,
    pub(super) full_bw_reached: bool,
    full_bw_now: bool,
    full_bw: f64,
    full_bw_count: u32,
    ack_phase: AckPhase,
    is_bw_probe_sample: bool,
    is_loss_in_round: bool,
    bw_probe_up_acked: f64,
    probe_up_acked_per_inc: f64,
    bw_probe_up_rounds: u32,
    rounds_since_probe_up: f64,
    bw_probe_wait: f64,
    cycle_stamp: f64,
    prev_probe_too_high: bool,
    pub(super) prev_probe_precautionary: bool,
    undo_state: Option<State>,
    undo_bw_shortterm: f64,
    undo_inflight_shortterm: f64,
    undo_inflight_longterm: f64,
    probe_rtt_min_delay: f64,
    probe_rtt_min_stamp: f64,
    probe_rtt_expired: bool,
    probe_rtt_done_stamp: f64,
    probe_rtt_round_done: bool,
    prior_cwnd: f64,
    pub(super) idle_restart: bool,
    loss_round_start: bool,
    loss_round_delivered: u64,
    loss_ranges: u32,
    round_start: bool,
    next_round_delivered: u64,
    pub(super) round_count: u64,
    drain_start_round: u64,
    has_seen_rtt: bool,
}

impl Model {
    /// OnInit
    pub(super) fn new(c: &Connection, random: u32) -> Self {
        let mut model = Self {
            random,
            state: State::Startup,
            cwnd: INITIAL_CWND,
            pacing_rate: 0.0,
            rs: RateSample { tx_in_flight: c.inflight, ..RateSample::default() },
            max_bw: 0.0,
            max_bw_filter: VecDeque::from([0.0, 0.0]),
            bw_shortterm: f64::INFINITY,
            bw: 0.0,
            min_rtt: if c.srtt > 0.0 { c.srtt } else { f64::INFINITY },
            min_rtt_stamp: c.now,
            inflight_longterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            extra_acked_interval_start: c.now,
            extra_acked_delivered: 0.0,
            extra_acked_filter: VecDeque::new(),
            extra_acked: 0.0,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: 0.0,
            full_bw_count: 0,
            ack_phase: AckPhase::Init,
            is_bw_probe_sample: false,
            is_loss_in_round: false,
            bw_probe_up_acked: 0.0,
            probe_up_acked_per_inc: f64::INFINITY,
            bw_probe_up_rounds: 0,
            rounds_since_probe_up: 0.0,
            bw_probe_wait: 0.0,
            cycle_stamp: 0.0,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            undo_state: None,
            undo_bw_shortterm: 0.0,
            undo_inflight_shortterm: 0.0,
            undo_inflight_longterm: 0.0,
            probe_rtt_min_delay: f64::INFINITY,
            probe_rtt_min_stamp: c.now,
            probe_rtt_expired: false,
            probe_rtt_done_stamp: 0.0,
            probe_rtt_round_done: false,
            prior_cwnd: 0.0,
            idle_restart: false,
            loss_round_start: false,
            loss_round_delivered: c.delivered,
            loss_ranges: 0,
            round_start: false,
            next_round_delivered: c.delivered,
            round_count: 0,
            drain_start_round: 0,
            has_seen_rtt: false,
        };
        model.init_pacing_rate(c);
        model
    }

    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random
    }

    // What happens.

    pub(super) fn update_on_ack(&mut self, c: &Connection, rs: RateSample) {
        self.rs = rs;
        // UpdateModelAndState
        self.update_latest_delivery_signals(c);
        self.update_congestion_signals(c);
        self.update_ack_aggregation(c);
        self.check_full_bw_reached();
        self.check_startup_done(c);
        self.check_drain_done(c);
        self.update_probe_bw_cycle_phase(c);
        self.update_min_rtt(c);
        self.check_probe_rtt(c);
        if self.loss_round_start {
            self.bw_latest = self.rs.delivery_rate;
            self.inflight_latest = self.rs.delivered;
        }
        self.bw = self.max_bw.min(self.bw_shortterm);
        // UpdateControlParameters
        self.set_pacing_rate(c);
        self.set_cwnd(c);
    }

    /// HandleLostPacket, for `size` packets that an ACK, or a timer after it, found lost.
    pub(super) fn handle_lost_packets(&mut self, c: &Connection, size: u64, rs: &RateSample) {
        if size == 0 {
            return;
        }
        // The draft counts ranges of sequence numbers; the kernel tells ACKs that found some.
        self.loss_ranges += 1;
        self.note_loss(c);
        if !self.is_bw_probe_sample {
            return;
        }
        self.rs.tx_in_flight = rs.tx_in_flight;
        self.rs.lost = rs.lost;
        self.rs.is_app_limited = rs.is_app_limited;
        if self.is_inflight_too_high(c) {
            self.rs.tx_in_flight = self.inflight_at_loss(size as f64);
            self.handle_inflight_too_high(c);
        }
    }

    /// OnEnterFastRecovery, OnEnterRTO: before C is in recovery.
    pub(super) fn enter_recovery(&mut self, c: &Connection) {
        self.save_state_upon_loss(c);
    }

    pub(super) fn exit_recovery(&mut self) {
        self.restore_cwnd();
    }

    /// Not in the draft: a mark is as too much loss where it probes, and as a loss elsewhere.
    pub(super) fn handle_mark(&mut self, c: &Connection) {
        self.note_loss(c);
        if self.is_bw_probe_sample {
            self.handle_inflight_too_high(c);
        } else if self.state == State::Startup && !self.full_bw_reached {
            self.leave_startup();
        }
    }

    /// HandleSpuriousLossDetection
    pub(super) fn handle_spurious_loss_detection(&mut self, c: &Connection) {
        self.restore_cwnd();
        self.is_loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.undo_bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo_inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo_inflight_longterm);
        if self.undo_state == Some(State::Startup) && self.state != State::Startup {
            self.full_bw_reached = false;
            if self.state != State::ProbeRtt {
                self.state = State::Startup;
            }
        } else if self.undo_state == Some(State::Up) && ![State::Up, State::ProbeRtt].contains(&self.state) {
            self.start_probe_bw_refill(c);
        }
        self.undo_state = None;
    }

    /// HandleRestartFromIdle, where nothing is in flight and the application was the limit.
    pub(super) fn handle_restart_from_idle(&mut self, c: &Connection) {
        self.idle_restart = true;
        self.extra_acked_interval_start = c.now;
        // Not in the draft: what was acknowledged before the interval is not of it.
        self.extra_acked_delivered = 0.0;
        if self.is_in_a_probe_bw_state() {
            self.set_pacing_rate_with_gain(1.0, c);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(c);
        }
    }

    // Startup and Drain.

    fn check_startup_done(&mut self, c: &Connection) {
        let high_loss = if c.has_selective_acks {
            self.loss_round_start && self.loss_ranges >= STARTUP_FULL_LOSS_COUNT && self.is_inflight_too_high(c)
        } else {
            self.loss_ranges > 0
        };
        if self.state == State::Startup && !self.full_bw_reached && c.in_fast_recovery && high_loss {
            self.leave_startup();
        }
        if self.loss_round_start {
            self.loss_ranges = 0;
        }
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    fn leave_startup(&mut self) {
        self.undo_state = Some(State::Startup);
        self.full_bw_reached = true;
        self.full_bw_now = true;
        self.inflight_longterm = self.bdp_multiple(self.bw, 1.0).max(self.inflight_latest);
    }

    fn reset_full_bw(&mut self) {
        self.full_bw = 0.0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    fn check_full_bw_reached(&mut self) {
        if self.full_bw_now || !self.round_start || self.rs.is_app_limited || self.rs.delivery_rate == 0.0 {
            return;
        }
        if self.rs.delivery_rate >= self.full_bw * 1.25 {
            self.reset_full_bw();
            self.full_bw = self.rs.delivery_rate;
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= 3;
        if self.full_bw_now {
            self.full_bw_reached = true;
        }
    }

    fn check_drain_done(&mut self, c: &Connection) {
        if self.state == State::Drain
            && (c.inflight <= self.inflight(self.bw) || self.round_count > self.drain_start_round + 3)
        {
            self.start_probe_bw_down(c);
        }
    }

    // ProbeBW.

    fn is_in_a_probe_bw_state(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    fn start_probe_bw_down(&mut self, c: &Connection) {
        self.is_loss_in_round = false;
        self.bw_latest = 0.0;
        self.inflight_latest = 0.0;
        self.probe_up_acked_per_inc = f64::INFINITY;
        // PickProbeWait
        let random = self.random();
        self.rounds_since_probe_up = f64::from(random & 1);
        self.bw_probe_wait = 2e6 + (1e6 * f64::from(random >> 8) / f64::from(1 << 24)).floor();
        self.cycle_stamp = c.now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(c);
        self.state = State::Down;
    }

    fn start_probe_bw_refill(&mut self, c: &Connection) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0.0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round(c);
        self.state = State::Refill;
    }

    fn start_probe_bw_up(&mut self, c: &Connection) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(c);
        self.reset_full_bw();
        self.full_bw = self.rs.delivery_rate;
        self.state = State::Up;
        self.raise_inflight_longterm_slope();
    }

    fn update_probe_bw_cycle_phase(&mut self, c: &Connection) {
        if !self.full_bw_reached || self.adapt_long_term_model(c) {
            return;
        }
        let state = self.state;
        match state {
            State::Down => {
                if self.is_time_to_probe_bw(c) {
                    self.start_probe_bw_refill(c);
                } else if c.inflight <= self.inflight_with_headroom() && c.inflight <= self.inflight(self.max_bw) {
                    self.state = State::Cruise;
                }
            }
            State::Cruise if self.is_time_to_probe_bw(c) => self.start_probe_bw_refill(c),
            State::Refill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_probe_bw_up(c);
            }
            State::Up if self.is_time_to_go_down(c) => {
                self.prev_probe_too_high = false;
                self.start_probe_bw_down(c);
            }
            _ => {}
        }
    }

    fn is_time_to_probe_bw(&self, c: &Connection) -> bool {
        c.now > self.cycle_stamp + self.bw_probe_wait || self.rounds_since_probe_up >= self.target_inflight().min(63.0)
    }

    fn target_inflight(&self) -> f64 {
        self.bdp_multiple(self.bw, 1.0).min(self.cwnd)
    }

    fn is_time_to_go_down(&mut self, c: &Connection) -> bool {
        // What was in flight before the ACK.
        if self.prev_probe_too_high && self.rs.prior_in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if c.is_cwnd_limited && self.cwnd >= self.inflight_longterm {
            self.reset_full_bw();
            self.full_bw = self.rs.delivery_rate;
            return false;
        }
        self.full_bw_now
    }

    fn inflight_with_headroom(&self) -> f64 {
        if self.inflight_longterm.is_infinite() {
            return f64::INFINITY;
        }
        let headroom = share(self.inflight_longterm, HEADROOM).max(1.0);
        (self.inflight_longterm - headroom).max(MIN_PIPE_CWND)
    }

    fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = 2_f64.powi(self.bw_probe_up_rounds as i32);
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth_this_round).floor().max(1.0);
    }

    fn probe_inflight_longterm_upward(&mut self, c: &Connection) {
        if !c.is_cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += self.rs.newly_acked;
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = (self.bw_probe_up_acked / self.probe_up_acked_per_inc).floor();
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm += delta;
        }
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    fn adapt_long_term_model(&mut self, c: &Connection) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            // AdvanceMaxBwFilter; not where the cycle had no sample.
            if self.is_in_a_probe_bw_state() && !self.rs.is_app_limited && self.max_bw_filter[1] > 0.0 {
                self.max_bw_filter.pop_front();
                self.max_bw_filter.push_back(0.0);
            }
            if self.is_in_a_probe_bw_state() && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_probe_bw_refill(c);
                return true;
            }
        }
        if !self.is_inflight_too_high(c) {
            if self.inflight_longterm.is_infinite() {
                return false;
            }
            self.inflight_longterm = self.inflight_longterm.max(self.rs.tx_in_flight);
            if self.state == State::Up {
                self.probe_inflight_longterm_upward(c);
            }
        }
        false
    }

    // ProbeRTT.

    fn update_min_rtt(&mut self, c: &Connection) {
        self.probe_rtt_expired = c.now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = self.rs.rtt
            && (rtt < self.probe_rtt_min_delay || self.probe_rtt_expired)
        {
            self.probe_rtt_min_delay = rtt;
            self.probe_rtt_min_stamp = c.now;
        }
        let min_rtt_expired = c.now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        if self.probe_rtt_min_delay < self.min_rtt || min_rtt_expired {
            self.min_rtt = self.probe_rtt_min_delay;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    fn check_probe_rtt(&mut self, c: &Connection) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(c);
            self.state = State::ProbeRtt;
            self.probe_rtt_done_stamp = 0.0;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(c);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(c);
        }
        if self.rs.delivered > 0.0 {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, c: &Connection) {
        // MarkConnectionAppLimited: the C does, of which there is one.
        if self.probe_rtt_done_stamp == 0.0 {
            if c.inflight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_stamp = c.now + PROBE_RTT_DURATION;
                self.probe_rtt_round_done = false;
                self.start_round(c);
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(c);
        }
    }

    fn check_probe_rtt_done(&mut self, c: &Connection) {
        if self.probe_rtt_done_stamp == 0.0 || c.now <= self.probe_rtt_done_stamp {
            return;
        }
        self.probe_rtt_min_stamp = c.now;
        self.restore_cwnd();
        // ExitProbeRTT
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_probe_bw_down(c);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        self.bdp_multiple(self.bw, PROBE_RTT_CWND_GAIN).max(MIN_PIPE_CWND)
    }
}

/// A share of packets, in whole ones.
fn share(packets: f64, share: f64) -> f64 {
    (packets * share + 1e-9).floor()
}
