//! A sender, a path and a receiver in virtual time, packet by packet: what a kernel does around a control that paces (the scoreboard, losses,
//! recovery, rate samples), with the C in it and the model beside it, which both see each event.
//!
//! ```text
//!   sender: window, pacing ──> loss ──> drop-tail queue, rate ──> half of the RTT ──> receiver
//!      ^ ACKs of each packet, or of those of a slot of time <── half of the RTT ─────────┘
//! ```
//!
//! A packet is lost when a third packet sent after it is acknowledged, or all are after a timeout. Losses are repaired first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_congestion::{Algorithm, Settings, Variant};

use super::model::{self, Connection, Model};
use crate::native::{Event, Native, RateSample, State};

/// What the path is; times in microseconds, rates in packets a second, volumes in packets.
#[derive(Debug, Clone)]
pub(super) struct Path {
    pub(super) base_rtt_us: f64,
    pub(super) rate: f64,
    pub(super) queue: f64,
    /// Lost by chance.
    pub(super) loss: f64,
    /// ACKs leave at multiples of this time; 0: at once.
    pub(super) slot_us: f64,
    /// Whether the receiver sends selective acknowledgements: here only, whether the control is told so.
    pub(super) sack: bool,
}

/// 100 Mb/s, 40 ms: 345 packets of 1448 bytes of payload.
pub(super) const WIDE: Path =
    Path { base_rtt_us: 40_000.0, rate: 8632.0, queue: 345.0, loss: 0.0, slot_us: 0.0, sack: true };

/// How much the application has to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Application {
    /// Always more.
    Bulk,
    /// So many packets a second.
    Rate(f64),
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    /// Of the data: a retransmission has the same.
    segment: u64,
    sent_us: f64,
    first_sent_us: f64,
    delivered: u64,
    delivered_us: f64,
    is_app_limited: bool,
    in_flight: u32,
    lost: u64,
}

/// What an ACK, or another event, left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) at_us: f64,
    pub(crate) event: &'static str,
    pub(crate) sample: RateSample,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) in_flight: u32,
    /// Of the C, and of the model.
    pub(crate) cwnd: [u32; 2],
    /// Bytes a second.
    pub(crate) pacing: [u64; 2],
    pub(super) state: model::State,
}

/// 2.77 times 2^-24 packets a microsecond, in bytes a second.
const RATE_UNIT: f64 = 2.77 * 1448e6 / (1 << 24) as f64;

impl Row {
    /// Whether the C's window or rate is not the model's: by more than a packet, and a thousandth of the rate or the unit in which the C counts
    /// it. In Startup nothing cuts a window that an ACK too many has raised.
    fn is_apart(&self) -> bool {
        let [ours, theirs] = self.cwnd.map(f64::from);
        let [our_rate, their_rate] = self.pacing.map(|rate| rate as f64);
        let packets = if self.state == model::State::Startup { 1 + self.sample.acked } else { 1 };
        (ours - theirs).abs() > f64::from(packets) || (our_rate - their_rate).abs() > 0.001 * their_rate + RATE_UNIT
    }
}

pub(super) struct Flow {
    pub(super) path: Path,
    pub(super) application: Application,
    pub(super) native: Native,
    pub(super) model: Model,
    pub(super) now_us: f64,
    pub(super) rows: Vec<Row>,
    /// Payload segments that the application wrote and that were sent for the first time.
    written: f64,
    next_segment: u64,
    /// In flight.
    packets: BTreeMap<u64, Packet>,
    next_packet: u64,
    repairs: VecDeque<u64>,
    /// When the ACK of a packet arrives.
    acks: VecDeque<(f64, u64)>,
    free_us: f64,
    next_send_us: f64,
    pub(super) delivered: u64,
    delivered_us: f64,
    first_sent_us: f64,
    pub(super) lost: u64,
    pub(super) in_flight: u32,
    pub(super) app_limited: u64,
    /// `delivered` up to which the window limits.
    limited_until: u64,
    srtt_us: f64,
    min_rtt_us: f64,
    kernel_state: State,
    /// Segments below this end the recovery.
    recovery_ends: u64,
    acknowledged: u64,
    /// The packet that was acknowledged last was sent while the application was the limit.
    last_app_limited: bool,
    last_prior_delivered: u32,
    /// How well the C finds again what the kernel does not keep: ACKs, those with another number of losses, by more than a twentieth, and
    /// those with another number of packets in flight, by more than two and a twentieth.
    pub(super) judged: u64,
    pub(super) wrong_losses: u64,
    pub(super) wrong_in_flight: u64,
    /// Segments beyond those that were acknowledged.
    seen: BTreeSet<u64>,
    timer_us: f64,
    dice: u64,
}

impl Flow {
    pub(super) fn new(path: Path) -> Self {
        Self::with(path, &[])
    }

    pub(super) fn with(path: Path, set: &[&str]) -> Self {
        let mut settings = Settings::new(Algorithm::Bbr3, Variant::Paper).unwrap();
        set.iter().for_each(|assignment| settings.set(assignment).unwrap());
        let mut native = Native::new(&settings);
        let now_us = 1e6;
        native.socket.time_us = now_us as u64;
        native.socket.srtt_8us = (path.base_rtt_us * 8.0) as u32;
        native.socket.sack = u32::from(path.sack);
        native.init();
        let mut flow = Self {
            application: Application::Bulk,
            model: Model::new(&connection_at_start(&path, now_us), native.socket.random),
            native,
            now_us,
            rows: Vec::new(),
            written: 0.0,
            next_segment: 0,
            packets: BTreeMap::new(),
            next_packet: 0,
            repairs: VecDeque::new(),
            acks: VecDeque::new(),
            free_us: 0.0,
            next_send_us: now_us,
            delivered: 0,
            delivered_us: now_us,
            first_sent_us: now_us,
            lost: 0,
            in_flight: 0,
            app_limited: 0,
            limited_until: 0,
            srtt_us: path.base_rtt_us,
            min_rtt_us: path.base_rtt_us,
            kernel_state: State::Open,
            recovery_ends: 0,
            acknowledged: 0,
            last_app_limited: false,
            last_prior_delivered: 0,
            judged: 0,
            wrong_losses: 0,
            wrong_in_flight: 0,
            seen: BTreeSet::new(),
            timer_us: f64::INFINITY,
            dice: 1,
            path,
        };
        flow.tell();
        flow
    }

    /// Runs until `until_us` after the beginning.
    pub(super) fn run(&mut self, until_s: f64) {
        let until_us = 1e6 + until_s * 1e6;
        self.run_while(|flow| flow.now_us < until_us);
    }

    /// Runs while `going`, at most for a minute.
    pub(super) fn run_while(&mut self, going: impl Fn(&Self) -> bool) {
        let end_us = self.now_us + 60e6;
        while going(self) {
            assert!(self.now_us < end_us, "it goes on for a minute: {:?}", self.rows.last());
            let ack_us = self.acks.front().map_or(f64::INFINITY, |(at, _)| *at);
            let send_us = if self.may_send() { self.next_send_us.max(self.now_us) } else { f64::INFINITY };
            // An application writes by the clock.
            let write_us = match self.application {
                Application::Rate(rate) if self.written < 1.0 => {
                    self.now_us + ((1.0 - self.written) / rate * 1e6).max(1.0)
                }
                Application::Nothing => self.now_us + 1000.0,
                _ => f64::INFINITY,
            };
            let at_us = ack_us.min(send_us).min(write_us).min(self.timer_us);
            assert!(at_us.is_finite(), "nothing happens: {:?}", self.rows.last());
            if let Application::Rate(rate) = self.application {
                self.written = (self.written + (at_us - self.now_us) * rate / 1e6).min(1000.0);
            }
            self.now_us = at_us;
            if at_us == ack_us {
                self.take_ack();
            } else if at_us == send_us {
                self.send();
            } else if at_us == self.timer_us {
                self.time_out();
            }
        }
    }

    fn has_data(&self) -> bool {
        !self.repairs.is_empty()
            || match self.application {
                Application::Bulk => true,
                Application::Rate(_) => self.written >= 1.0,
                Application::Nothing => false,
            }
    }

    fn may_send(&mut self) -> bool {
        if self.in_flight >= self.native.socket.cwnd {
            self.limited_until = self.limited_until.max(self.delivered + u64::from(self.in_flight));
            return false;
        }
        if !self.has_data() {
            self.app_limited = (self.delivered + u64::from(self.in_flight)).max(1);
            return false;
        }
        true
    }

    fn chance(&mut self) -> f64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn send(&mut self) {
        if self.in_flight == 0 {
            self.first_sent_us = self.now_us;
            self.delivered_us = self.now_us;
            if self.app_limited > 0 {
                self.tell();
                let connection = self.connection();
                self.model.handle_restart_from_idle(&connection);
                self.native.event(Event::TxStart);
                self.hear("restart", RateSample::default());
            }
        }
        let segment = match self.repairs.pop_front() {
            Some(segment) => segment,
            None => {
                self.written -= if self.application == Application::Bulk { 0.0 } else { 1.0 };
                self.next_segment += 1;
                self.next_segment - 1
            }
        };
        self.in_flight += 1;
        let packet = Packet {
            segment,
            sent_us: self.now_us,
            first_sent_us: self.first_sent_us,
            delivered: self.delivered,
            delivered_us: self.delivered_us,
            is_app_limited: self.app_limited > 0,
            in_flight: self.in_flight,
            lost: self.lost,
        };
        self.packets.insert(self.next_packet, packet);
        self.next_send_us = self.now_us + 1448e6 / self.native.socket.pacing_rate.max(1) as f64;
        let waits = (self.free_us - self.now_us).max(0.0) * self.path.rate / 1e6;
        if self.chance() >= self.path.loss && waits <= self.path.queue {
            self.free_us = self.free_us.max(self.now_us) + 1e6 / self.path.rate;
            let mut at_us = self.free_us + self.path.base_rtt_us;
            if self.path.slot_us > 0.0 {
                at_us = (at_us / self.path.slot_us).ceil() * self.path.slot_us;
            }
            self.acks.push_back((at_us, self.next_packet));
        }
        self.next_packet += 1;
        self.timer_us = self.now_us + self.srtt_us + 200e3;
    }

    /// All ACKs of one moment are one.
    fn take_ack(&mut self) {
        let mut newest: Option<(u64, Packet)> = None;
        let prior_in_flight = self.in_flight;
        let mut acked = 0;
        while let Some(&(at_us, number)) = self.acks.front()
            && at_us == self.now_us
        {
            self.acks.pop_front();
            // One that was taken for lost is not heard of: its copy is.
            let Some(packet) = self.packets.remove(&number) else { continue };
            self.in_flight -= 1;
            if packet.segment < self.acknowledged || !self.seen.insert(packet.segment) {
                // A copy: it was delivered before.
                continue;
            }
            self.delivered += 1;
            self.delivered_us = self.now_us;
            acked += 1;
            if newest.is_none_or(|(newest, _)| number > newest) {
                newest = Some((number, packet));
            }
        }
        while self.seen.remove(&self.acknowledged) {
            self.acknowledged += 1;
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let mut sample =
            RateSample { delivered: -1, interval_us: -1, rtt_us: -1, acked, prior_in_flight, ..RateSample::default() };
        let mut newly_lost = 0;
        let mut exact = model::RateSample {
            newly_acked: f64::from(acked),
            prior_in_flight: f64::from(prior_in_flight),
            ..model::RateSample::default()
        };
        if let Some((number, packet)) = newest {
            let rtt_us = (self.now_us - packet.sent_us).floor();
            self.srtt_us += (rtt_us - self.srtt_us) / 8.0;
            self.min_rtt_us = self.min_rtt_us.min(rtt_us);
            self.first_sent_us = packet.sent_us;
            let interval_us = (packet.sent_us - packet.first_sent_us).max(self.now_us - packet.delivered_us).floor();
            let delivered = self.delivered - packet.delivered;
            sample.prior_delivered = packet.delivered as u32;
            sample.delivered = delivered as i32;
            sample.interval_us = if interval_us < self.min_rtt_us { -1 } else { interval_us as i64 };
            sample.rtt_us = rtt_us as i64;
            sample.is_app_limited = u32::from(packet.is_app_limited);
            exact.delivered = delivered as f64;
            exact.prior_delivered = packet.delivered;
            exact.delivery_rate = if sample.interval_us > 0 { delivered as f64 / interval_us } else { 0.0 };
            exact.rtt = Some(rtt_us);
            exact.tx_in_flight = f64::from(packet.in_flight);
            exact.is_app_limited = packet.is_app_limited;
            self.last_app_limited = packet.is_app_limited;
            newly_lost = self.find_losses(number);
            exact.lost = (self.lost - packet.lost) as f64;
            self.enter_recovery(newly_lost);
        }
        if self.kernel_state != State::Open && self.acknowledged >= self.recovery_ends {
            self.tell();
            self.native.set_state(State::Open);
            self.model.exit_recovery();
            self.kernel_state = State::Open;
        }
        self.timer_us = if self.in_flight > 0 { self.now_us + self.srtt_us + 200e3 } else { f64::INFINITY };
        self.last_prior_delivered = sample.prior_delivered;
        self.tell();
        let connection = self.connection();
        self.native.control(&sample);
        if newest.is_some() {
            let known = self.native.at_sending(sample.prior_delivered);
            self.judge(known, [exact.tx_in_flight, exact.lost]);
            [exact.tx_in_flight, exact.lost] = known.map(f64::from);
        }
        self.model.handle_lost_packets(&connection, newly_lost, &exact);
        self.model.update_on_ack(&connection, exact);
        self.hear("ack", sample);
    }

    /// Packets with three later ones acknowledged.
    fn find_losses(&mut self, newest: u64) -> u64 {
        let found: Vec<u64> = self.packets.range(..newest.saturating_sub(2)).map(|(number, _)| *number).collect();
        self.lose(&found)
    }

    fn lose(&mut self, numbers: &[u64]) -> u64 {
        for number in numbers {
            let packet = self.packets.remove(number).unwrap();
            self.in_flight -= 1;
            self.lost += 1;
            self.repairs.push_back(packet.segment);
        }
        numbers.len() as u64
    }

    /// What TCP does about losses that an ACK showed. They are told with the ACK.
    fn enter_recovery(&mut self, lost: u64) {
        if lost == 0 || self.kernel_state != State::Open {
            return;
        }
        self.recovery_ends = self.next_segment;
        self.tell();
        let connection = self.connection();
        self.model.enter_recovery(&connection);
        self.native.ssthresh();
        self.native.set_state(State::Recovery);
        self.kernel_state = State::Recovery;
    }

    /// What the C found again of a packet's sending, beside what it was: losses since then, and what was in flight.
    fn judge(&mut self, [tx_in_flight, lost]: [u32; 2], [exact_in_flight, exact_lost]: [f64; 2]) {
        self.judged += 1;
        self.wrong_losses += u64::from((f64::from(lost) - exact_lost).abs() > 0.05 * exact_lost);
        // What is sent between two ACKs counts as the last of it; in Startup that is much.
        let between = self.path.rate * self.path.slot_us / 1e6 * 1.25;
        let right = 0.95 * exact_in_flight - 2.0..1.05 * exact_in_flight + 2.0 + between;
        self.wrong_in_flight += u64::from(self.model.full_bw_reached && !right.contains(&f64::from(tx_in_flight)));
    }

    fn time_out(&mut self) {
        let out: Vec<u64> = self.packets.keys().copied().collect();
        self.timer_us = self.now_us + 2.0 * (self.srtt_us + 200e3);
        let lost = self.lose(&out);
        self.tell();
        let mut connection = self.connection();
        if self.kernel_state != State::Loss {
            self.model.enter_recovery(&connection);
            self.native.ssthresh();
        }
        self.recovery_ends = self.next_segment;
        self.kernel_state = State::Loss;
        connection.in_loss_recovery = true;
        self.native.socket.cwnd = self.in_flight + 1;
        self.model.cwnd = f64::from(self.in_flight + 1);
        self.native.set_state(State::Loss);
        let [tx_in_flight, lost_since] = self.native.at_sending(self.last_prior_delivered).map(f64::from);
        let told = model::RateSample {
            tx_in_flight,
            lost: lost_since,
            is_app_limited: self.last_app_limited,
            ..Default::default()
        };
        self.model.handle_lost_packets(&connection, lost, &told);
        self.hear("timeout", RateSample::default());
    }

    /// The kernel finds that nothing of the recovery was lost.
    pub(super) fn undo(&mut self) {
        self.tell();
        let connection = self.connection();
        self.native.socket.cwnd = self.native.undo();
        self.model.handle_spurious_loss_detection(&connection);
        self.hear("undo", RateSample::default());
        self.native.set_state(State::Open);
        self.model.exit_recovery();
        self.kernel_state = State::Open;
    }

    /// ECN: the receiver tells of a mark.
    pub(super) fn mark(&mut self) {
        self.tell();
        let connection = self.connection();
        self.model.enter_recovery(&connection);
        self.native.ssthresh();
        self.native.set_state(State::Cwr);
        self.model.handle_mark(&connection);
        self.hear("mark", RateSample::default());
        self.native.set_state(State::Open);
    }

    /// The share of rows in which C and model are apart.
    pub(super) fn apart(&self) -> f64 {
        self.rows.iter().filter(|row| row.is_apart()).count() as f64 / self.rows.len() as f64
    }

    /// The first row of those.
    pub(super) fn first_apart(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.is_apart())
    }

    pub(super) fn is_open(&self) -> bool {
        self.kernel_state == State::Open
    }

    fn connection(&self) -> Connection {
        Connection {
            now: self.now_us.floor(),
            srtt: self.srtt_us,
            delivered: self.delivered,
            inflight: f64::from(self.in_flight),
            is_cwnd_limited: self.delivered < self.limited_until,
            has_selective_acks: self.path.sack,
            in_fast_recovery: self.kernel_state == State::Recovery,
            in_loss_recovery: matches!(self.kernel_state, State::Recovery | State::Loss),
        }
    }

    /// Writes into the socket what TCP knows.
    fn tell(&mut self) {
        let socket = &mut self.native.socket;
        socket.time_us = self.now_us as u64;
        socket.srtt_8us = (self.srtt_us * 8.0) as u32;
        socket.delivered = self.delivered as u32;
        socket.lost = self.lost as u32;
        socket.packets_out = self.in_flight;
        socket.snd_una = self.acknowledged as u32;
        socket.snd_nxt = self.next_segment as u32;
        socket.app_limited = self.app_limited as u32;
        socket.is_cwnd_limited = u32::from(self.delivered < self.limited_until);
    }

    fn hear(&mut self, event: &'static str, sample: RateSample) {
        let socket = &self.native.socket;
        // ProbeRTT sets it.
        self.app_limited = u64::from(socket.app_limited);
        let row = Row {
            at_us: self.now_us - 1e6,
            event,
            sample,
            delivered: self.delivered,
            lost: self.lost,
            in_flight: self.in_flight,
            cwnd: [socket.cwnd, self.model.cwnd as u32],
            pacing: [socket.pacing_rate, self.model.pacing_rate as u64],
            state: self.model.state,
        };
        self.rows.push(row);
    }
}

fn connection_at_start(path: &Path, now: f64) -> Connection {
    Connection {
        now,
        srtt: path.base_rtt_us,
        delivered: 0,
        inflight: 0.0,
        is_cwnd_limited: false,
        has_selective_acks: path.sack,
        in_fast_recovery: false,
        in_loss_recovery: false,
    }
}
