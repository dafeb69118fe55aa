//! What the model knows of the path, and the rate and window that follow from it: the draft's "Updating Network Path Model Parameters" and
//! "Updating Control Parameters".

use super::{
    BETA, Connection, DEFAULT_CWND_GAIN, DRAIN_PACING_GAIN, EXTRA_ACKED_FILTER_LEN, INITIAL_CWND, LOSS_THRESH,
    MIN_PIPE_CWND, Model, PACING_MARGIN_PERCENT, PROBE_RTT_CWND_GAIN, SMSS, STARTUP_PACING_GAIN, State, share,
};

impl Model {
    pub(super) fn start_round(&mut self, c: &Connection) {
        self.next_round_delivered = c.delivered;
    }

    pub(super) fn update_latest_delivery_signals(&mut self, c: &Connection) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(self.rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(self.rs.delivered);
        if self.rs.delivered > 0.0 && self.rs.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = c.delivered;
            self.loss_round_start = true;
        }
    }

    pub(super) fn update_congestion_signals(&mut self, c: &Connection) {
        // UpdateMaxBw and UpdateRound
        self.round_start = self.rs.delivered > 0.0 && self.rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round(c);
            self.round_count += 1;
            self.rounds_since_probe_up += 1.0;
        }
        let rate = self.rs.delivery_rate;
        if rate > 0.0 && (rate >= self.max_bw || !self.rs.is_app_limited) {
            self.max_bw_filter[1] = self.max_bw_filter[1].max(rate);
            self.max_bw = self.max_bw_filter.iter().fold(0.0, |most, rate| rate.max(most));
        }
        if !self.loss_round_start {
            return;
        }
        if self.is_loss_in_round && !self.is_probing_bw() {
            if self.bw_shortterm.is_infinite() {
                self.bw_shortterm = self.max_bw;
            }
            if self.inflight_shortterm.is_infinite() {
                self.inflight_shortterm = self.cwnd;
            }
            self.bw_shortterm = self.bw_latest.max(BETA * self.bw_shortterm);
            self.inflight_shortterm = self.inflight_latest.max(share(self.inflight_shortterm, BETA));
        }
        self.is_loss_in_round = false;
    }

    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm = f64::INFINITY;
        self.inflight_shortterm = f64::INFINITY;
    }

    pub(super) fn update_ack_aggregation(&mut self, c: &Connection) {
        let interval = c.now - self.extra_acked_interval_start;
        let mut expected_delivered = (self.bw * interval + 1e-6).floor();
        if self.extra_acked_delivered <= expected_delivered {
            self.extra_acked_delivered = 0.0;
            self.extra_acked_interval_start = c.now;
            expected_delivered = 0.0;
        }
        self.extra_acked_delivered += self.rs.newly_acked;
        let extra = (self.extra_acked_delivered - expected_delivered).max(0.0).min(self.cwnd);
        let filter_len = if self.full_bw_reached { EXTRA_ACKED_FILTER_LEN } else { 1 };
        self.extra_acked_filter.push_back((self.round_count, extra));
        let round = self.round_count;
        self.extra_acked_filter.retain(|(when, _)| round - when < filter_len);
        self.extra_acked = self.extra_acked_filter.iter().fold(0.0, |most, (_, extra)| extra.max(most));
        // What is less than a later one never counts again.
        if let Some(last) = self.extra_acked_filter.back().copied() {
            self.extra_acked_filter.retain(|one| one.1 > last.1);
            self.extra_acked_filter.push_back(last);
        }
    }

    pub(super) fn is_inflight_too_high(&self, c: &Connection) -> bool {
        self.rs.lost > self.rs.tx_in_flight * LOSS_THRESH || (self.rs.lost > 0.0 && !c.has_selective_acks)
    }

    pub(super) fn handle_inflight_too_high(&mut self, c: &Connection) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !self.rs.is_app_limited {
            self.inflight_longterm = self.rs.tx_in_flight.max(share(self.target_inflight(), BETA));
        }
        if self.state == State::Up {
            self.undo_state = Some(State::Up);
            self.start_probe_bw_down(c);
        }
    }

    pub(super) fn inflight_at_loss(&self, size: f64) -> f64 {
        let (inflight_prev, lost_prev) = ((self.rs.tx_in_flight - size).max(0.0), (self.rs.lost - size).max(0.0));
        let lost_prefix = (LOSS_THRESH * inflight_prev - lost_prev) / (1.0 - LOSS_THRESH);
        (inflight_prev + lost_prefix.max(0.0)).floor()
    }

    pub(super) fn note_loss(&mut self, c: &Connection) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = c.delivered;
            self.save_state_upon_loss(c);
        }
        self.is_loss_in_round = true;
    }

    pub(super) fn save_state_upon_loss(&mut self, c: &Connection) {
        self.save_cwnd(c);
        self.undo_state = None;
        self.undo_bw_shortterm = self.bw_shortterm;
        self.undo_inflight_shortterm = self.inflight_shortterm;
        self.undo_inflight_longterm = self.inflight_longterm;
    }

    // Control parameters.

    pub(super) fn init_pacing_rate(&mut self, c: &Connection) {
        self.has_seen_rtt |= c.srtt > 0.0;
        let srtt = if c.srtt > 0.0 { c.srtt } else { 1000.0 };
        self.pacing_rate = STARTUP_PACING_GAIN * INITIAL_CWND / srtt * 1e6 * SMSS;
    }

    pub(super) fn set_pacing_rate(&mut self, c: &Connection) {
        let gain = match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::Down => 0.9,
            State::Up => 1.25,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
        };
        self.set_pacing_rate_with_gain(gain, c);
    }

    pub(super) fn set_pacing_rate_with_gain(&mut self, gain: f64, c: &Connection) {
        if !self.has_seen_rtt && c.srtt > 0.0 {
            self.init_pacing_rate(c);
        }
        let rate = gain * self.bw * (100.0 - PACING_MARGIN_PERCENT) / 100.0 * 1e6 * SMSS;
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    pub(super) fn bdp_multiple(&self, bw: f64, gain: f64) -> f64 {
        if self.min_rtt.is_infinite() { INITIAL_CWND } else { (gain * bw * self.min_rtt - 1e-6).ceil() }
    }

    pub(super) fn quantization_budget(&self, inflight_cap: f64) -> f64 {
        let send_quantum = ((self.pacing_rate / 1e3).min(65_536.0) / SMSS).floor().max(2.0);
        let cap = inflight_cap.max(3.0 * send_quantum).max(MIN_PIPE_CWND);
        if self.state == State::Up { cap + 2.0 } else { cap }
    }

    /// Inflight(bw, 1.0)
    pub(super) fn inflight(&self, bw: f64) -> f64 {
        self.quantization_budget(self.bdp_multiple(bw, 1.0))
    }

    pub(super) fn set_cwnd(&mut self, c: &Connection) {
        let gain = match self.state {
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            State::Up => 2.25,
            _ => DEFAULT_CWND_GAIN,
        };
        let max_inflight = self.quantization_budget(self.bdp_multiple(self.bw, gain) + self.extra_acked);
        if self.full_bw_reached {
            self.cwnd = (self.cwnd + self.rs.newly_acked).min(max_inflight);
        } else if self.cwnd < max_inflight || (c.delivered as f64) < INITIAL_CWND {
            self.cwnd += self.rs.newly_acked;
        }
        self.cwnd = self.cwnd.max(MIN_PIPE_CWND);
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        // BoundCwndForModel
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        self.cwnd = self.cwnd.min(cap.min(self.inflight_shortterm).max(MIN_PIPE_CWND));
    }

    pub(super) fn save_cwnd(&mut self, c: &Connection) {
        self.prior_cwnd = if !c.in_loss_recovery && self.state != State::ProbeRtt {
            self.cwnd
        } else {
            self.prior_cwnd.max(self.cwnd)
        };
    }

    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}
