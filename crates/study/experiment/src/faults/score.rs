//! What a diagnosis named, beside what is known to be wrong.

use std::collections::BTreeMap;

use longhaul_diagnosis::{Cause, Code, Diagnosis, Role};
use longhaul_result::Location;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use super::spec::{ExpectedCause, Fault, Form, Measured, SCORED_RATIO};

/// A price is right within this factor of what fixing brought.
pub const PRICE_FACTOR: f64 = 1.5;

/// A fault at a round trip, diagnosed once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cell {
    /// The fault's name.
    pub fault: String,
    /// What is wrong, in a line.
    pub title: String,
    /// The path's round trip.
    pub rtt_ns: u64,
    /// Seed of the path's random numbers.
    pub seed: u64,
    /// The form of `longhaul diagnose`.
    pub form: Form,
    /// Whether this form should name the fault: the tests always, others where the fault's file says so.
    pub should_find: bool,
    /// What is asked of the diagnosis.
    pub kind: Kind,
    /// The causes that should be named: two of a pair, none of a healthy path. Of a fault that costs too little, its code if it has one.
    pub expected: Vec<Expected>,
    /// The causes that were named, in their order.
    pub named: Vec<Named>,
    /// The codes of findings.
    pub findings: Vec<String>,
    /// Payload that TCP carried in the diagnosis, bits per second.
    pub goodput_bps: Option<u64>,
    /// Payload that TCP carries with the fault and without it, bits per second, from a separate measurement; `null` if there is none.
    pub measured_bps: Option<[u64; 2]>,
    /// Whether what had to be named was: the first cause is the fault, the first two are the pair, there is no cause on a healthy path. Of
    /// a fault that costs too little: no other cause is named.
    pub right: bool,
    /// Whether the first cause has the right location; `null` if none is known or the code is wrong.
    pub place_right: Option<bool>,
    /// The same of the host.
    pub host_right: Option<bool>,
    /// Whether the price is within 1.5 times what fixing brought; `null` where the code is wrong, or the price is no interval.
    pub price_right: Option<bool>,
    /// The gain of tuning the hosts by the diagnosis; `null` if that was not requested, or if its first cause is at no host.
    pub tuned: Option<Tuned>,
    /// Diagnoses that were repeated because the machine disturbed them.
    pub void_runs: usize,
    /// Why there is no diagnosis; empty if there is one.
    pub error: String,
    /// Whether some flows meet the fault and others do not.
    #[serde(skip)]
    some_flows: bool,
    /// The rate of the path, bits per second on the wire.
    #[serde(skip)]
    rate_bps: u64,
}

/// What is asked of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its first cause is the fault: fixing it raises goodput 1.3 times or more.
    Single,
    /// Its first two causes are the two faults.
    Pair,
    /// It names no other cause: fixing the fault raises goodput less.
    Finding,
    /// It names no cause.
    Healthy,
}

/// A cause that should be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expected {
    /// The limit.
    pub code: Code,
    /// Where packets are lost, or wait; `null`: any location is right.
    pub place: Option<Location>,
    /// At which host; `null`: any is right.
    pub host: Option<Role>,
}

/// A cause that was named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// The limit.
    pub code: Code,
    /// Where packets are lost, or wait.
    pub place: Option<Location>,
    /// At which host.
    pub host: Option<Role>,
    /// The rate that it allows: least and most, payload bits per second.
    pub bound_bps: (u64, Option<u64>),
    /// What fixing this cause and all before it adds: least and most, payload bits per second.
    pub worth_bps: (u64, Option<u64>),
    /// Whether the worth is an upper end only.
    pub worth_is_upper_end: bool,
}

impl Named {
    fn of(cause: &Cause) -> Self {
        let (bound, worth) = (cause.bound.bound_bps, cause.worth_bps);
        Self {
            code: cause.bound.code,
            place: cause.bound.place,
            host: cause.bound.host,
            bound_bps: (bound.least, bound.most),
            worth_bps: (worth.least, worth.most),
            worth_is_upper_end: cause.worth_is_upper_end,
        }
    }

    /// Whether the worth agrees with `brought`, what fixing brought; `None` where it says too little to tell.
    fn price_is_right(&self, brought: u64) -> Option<bool> {
        let (least, most) = self.worth_bps;
        let brought = brought as f64;
        // An interval is right where any of it is near enough; an upper end is wrong where it is too low.
        let not_too_low = most.is_none_or(|most| most as f64 * PRICE_FACTOR >= brought);
        let not_too_high = self.worth_is_upper_end || least as f64 <= brought * PRICE_FACTOR;
        (most.is_some() || !not_too_high).then_some(not_too_low && not_too_high)
    }
}

impl From<ExpectedCause> for Expected {
    fn from(cause: ExpectedCause) -> Self {
        Self { code: cause.code, place: cause.place, host: cause.host }
    }
}

/// What tuning both hosts by a diagnosis brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tuned {
    /// The settings that were changed, at the sender and at the receiver.
    pub settings: Vec<String>,
    /// The promised rate: the goodput plus the lower end of what the first cause is worth, payload bits per second.
    pub promised_bps: u64,
    /// What one flow carried then, payload bits per second.
    pub came_bps: u64,
    /// Whether at least 80 % of the promised rate was reached.
    pub kept: bool,
    /// Whether a setting fixes the cause. A rule of a firewall or a queueing discipline that somebody set up, a program, a CPU, a disk are their
    /// owners': `longhaul tune` leaves them, and it is not scored.
    pub is_a_setting: bool,
}

impl Cell {
    /// A cell without a diagnosis.
    pub fn new(fault: &Fault, rtt: Nanos, seed: u64, measured: Option<Measured>) -> Self {
        let kind = if fault.is_healthy() {
            Kind::Healthy
        } else if fault.is_pair() {
            Kind::Pair
        } else if fault.causes.is_empty() || measured.is_some_and(|row| !row.is_scored()) {
            Kind::Finding
        } else {
            Kind::Single
        };
        Self {
            fault: fault.name.clone(),
            title: fault.title.clone(),
            rtt_ns: rtt.0,
            seed,
            form: Form::Test,
            should_find: true,
            kind,
            expected: fault.causes.iter().copied().map(Expected::from).collect(),
            named: Vec::new(),
            findings: Vec::new(),
            goodput_bps: None,
            measured_bps: measured.map(|row| [row.faulty.0, row.fixed.0]),
            right: false,
            place_right: None,
            host_right: None,
            price_right: None,
            tuned: None,
            void_runs: 0,
            error: String::new(),
            some_flows: fault.some_flows,
            rate_bps: fault.rate.0,
        }
    }

    /// The same for another form of `longhaul diagnose`.
    pub fn by(self, form: Form, fault: &Fault) -> Self {
        let should_find = form == Form::Test || fault.is_healthy() || fault.found_by.contains(&form);
        Self { form, should_find, ..self }
    }

    /// The same without a diagnosis, and why.
    pub fn failed(self, why: impl Into<String>) -> Self {
        Self { error: why.into(), ..self }
    }

    /// The same after so many diagnoses that the machine spoiled.
    pub fn with_void_runs(self, void_runs: usize) -> Self {
        Self { void_runs, ..self }
    }

    /// The same with what tuning brought.
    pub fn tuned(self, tuned: Option<Tuned>) -> Self {
        Self { tuned, ..self }
    }

    /// The same with what `diagnosis` named.
    pub fn judged(mut self, diagnosis: &Diagnosis) -> Self {
        self.named = diagnosis.causes.iter().map(Named::of).collect();
        self.findings = diagnosis.findings.iter().map(|finding| finding.code.clone()).collect();
        self.goodput_bps = diagnosis.goodput_bps;
        if self.kind == Kind::Single && self.costs_too_little() {
            self.kind = Kind::Finding;
        }
        let named = |code: Code, among: usize| self.named.iter().take(among).any(|cause| cause.code == code);
        self.right = match self.kind {
            Kind::Single => self.expected.iter().all(|cause| named(cause.code, 1)),
            Kind::Pair => self.expected.iter().all(|cause| named(cause.code, 2)),
            Kind::Finding => self.named.iter().all(|cause| self.expected.iter().any(|one| one.code == cause.code)),
            Kind::Healthy => self.named.is_empty(),
        };
        if !self.right || matches!(self.kind, Kind::Finding | Kind::Healthy) {
            return self;
        }
        let pairs: Vec<(&Expected, &Named)> = self
            .expected
            .iter()
            .filter_map(|one| Some((one, self.named.iter().find(|cause| cause.code == one.code)?)))
            .collect();
        let all = |judged: Vec<bool>| (!judged.is_empty()).then(|| judged.into_iter().all(|right| right));
        let place = |(one, cause): &(&Expected, &Named)| one.place.map(|place| cause.place == Some(place));
        let host = |(one, cause): &(&Expected, &Named)| one.host.map(|host| cause.host == Some(host));
        self.place_right = all(pairs.iter().filter_map(place).collect());
        self.host_right = all(pairs.iter().filter_map(host).collect());
        // Fixing a pair is fixing both, and the second cause's worth has the first one's in it.
        let last = self.named.get(self.expected.len() - 1);
        self.price_right = self.measured_bps.zip(last).and_then(|([faulty, fixed], cause)| {
            let brought = fixed.saturating_sub(faulty);
            cause.price_is_right(brought)
        });
        self
    }

    /// Whether the test's own goodput leaves little to fix: its flow did not meet the fault; or over this round trip, over which nothing was
    /// measured, the path carries its rate all the same.
    fn costs_too_little(&self) -> bool {
        let fixed = match self.measured_bps {
            Some([_, fixed]) => self.some_flows.then_some(fixed),
            None => Some(self.rate_bps),
        };
        self.goodput_bps.zip(fixed).is_some_and(|(goodput, fixed)| goodput as f64 * SCORED_RATIO > fixed as f64)
    }

    /// The code that stands for what is wrong: the first of a pair.
    pub fn expected_code(&self) -> Code {
        match self.kind {
            Kind::Healthy | Kind::Finding => Code::None,
            Kind::Single | Kind::Pair => self.expected.first().map_or(Code::None, |cause| cause.code),
        }
    }

    /// The first cause's code.
    pub fn named_code(&self) -> Code {
        self.named.first().map_or(Code::None, |cause| cause.code)
    }
}

/// All cells in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Faults by the code that should be named, with how many times each code was the first cause.
    pub confusion: BTreeMap<Code, BTreeMap<Code, usize>>,
    /// Of single faults: the first cause is right.
    pub single: Share,
    /// Of these: the location is right.
    pub place: Share,
    /// Of these: the host is right.
    pub host: Share,
    /// Of pairs: both are among the first two causes.
    pub pair: Share,
    /// Of healthy paths: no cause is named.
    pub healthy: Share,
    /// Of faults that cost too little: no other cause is named.
    pub finding: Share,
    /// Of right causes: the price is within 1.5 times what fixing brought.
    pub price: Share,
    /// Of right first causes at a host that a setting fixes: 80 % of the promised rate came after `longhaul tune`.
    pub tuned: Share,
    /// Right first causes at a host that are a rule, a program, a CPU or a disk: `longhaul tune` leaves them.
    pub left_to_owners: usize,
    /// Diagnoses without a test, by form: of the faults that the form should find, those that it names correctly; of the healthy paths, those
    /// for which it names no cause.
    pub without_test: BTreeMap<Form, Share>,
    /// Diagnoses that were repeated because the machine disturbed them.
    pub void_runs: usize,
    /// Cells without a diagnosis.
    pub failed: usize,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// So many were right.
    pub right: usize,
    /// Of so many.
    pub of: usize,
}

impl Share {
    fn of(judged: impl Iterator<Item = bool>) -> Self {
        judged.fold(Self::default(), |sum, right| Self { right: sum.right + usize::from(right), of: sum.of + 1 })
    }
}

impl Summary {
    /// The numbers of `cells`.
    pub fn of(cells: &[Cell]) -> Self {
        let seen = || cells.iter().filter(|cell| cell.error.is_empty());
        let diagnosed = || seen().filter(|cell| cell.form == Form::Test);
        let kind = |kind: Kind| Share::of(diagnosed().filter(|cell| cell.kind == kind).map(|cell| cell.right));
        let mut confusion: BTreeMap<Code, BTreeMap<Code, usize>> = BTreeMap::new();
        for cell in diagnosed().filter(|cell| cell.kind != Kind::Pair) {
            *confusion.entry(cell.expected_code()).or_default().entry(cell.named_code()).or_default() += 1;
        }
        let mut without_test: BTreeMap<Form, Share> = BTreeMap::new();
        for cell in seen().filter(|cell| cell.form != Form::Test && cell.should_find) {
            let share = without_test.entry(cell.form).or_default();
            *share = Share { right: share.right + usize::from(cell.right), of: share.of + 1 };
        }
        let scored = || diagnosed().filter(|cell| matches!(cell.kind, Kind::Single | Kind::Pair));
        let tuned = || scored().filter(|cell| cell.right).filter_map(|cell| cell.tuned.as_ref());
        Self {
            confusion,
            single: kind(Kind::Single),
            place: Share::of(scored().filter_map(|cell| cell.place_right)),
            host: Share::of(scored().filter_map(|cell| cell.host_right)),
            pair: kind(Kind::Pair),
            healthy: kind(Kind::Healthy),
            finding: kind(Kind::Finding),
            price: Share::of(scored().filter_map(|cell| cell.price_right)),
            tuned: Share::of(tuned().filter(|tuned| tuned.is_a_setting).map(|tuned| tuned.kept)),
            left_to_owners: tuned().filter(|tuned| !tuned.is_a_setting).count(),
            without_test,
            void_runs: cells.iter().map(|cell| cell.void_runs).sum(),
            failed: cells.len() - seen().count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_diagnosis::{Basis, Bound, Interval};
    use longhaul_units::BitRate;

    use super::*;
    use crate::faults::find;

    const MBIT: u64 = 1_000_000;

    fn cause(code: Code, host: Option<Role>, worth: (u64, u64)) -> Cause {
        let interval = |(least, most): (u64, u64)| Interval::measured(least * MBIT, most * MBIT);
        Cause {
            bound: Bound {
                code,
                place: None,
                host,
                bound_bps: interval((15, 16)),
                evidence: Vec::new(),
                remedies: Vec::new(),
            },
            worth_bps: interval(worth),
            worth_is_upper_end: false,
        }
    }

    fn diagnosis(causes: Vec<Cause>) -> Diagnosis {
        Diagnosis {
            target_bps: Some(100 * MBIT),
            target_basis: None,
            target_payload_bps: None,
            goodput_bps: Some(15 * MBIT),
            base_rtt_ns: None,
            causes,
            bounds: Vec::new(),
            findings: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn judged(fault: &str, fixed: u64, causes: Vec<Cause>) -> Cell {
        let rtt = Nanos::from_millis(80);
        let measured = Measured { rtt, faulty: BitRate(15 * MBIT), fixed: BitRate(fixed * MBIT) };
        Cell::new(&find(fault).unwrap(), rtt, 1, Some(measured)).judged(&diagnosis(causes))
    }

    /// A window of 15 of 90 Mb/s: fixing it brings 75.
    #[test]
    fn a_single_fault_is_the_first_cause_with_host_and_price() {
        let window = |host, worth| cause(Code::ReceiveWindow, Some(host), worth);
        let cell = judged("receive-buffer", 90, vec![window(Role::Receiver, (60, 80))]);
        assert_eq!((cell.kind, cell.right, cell.host_right), (Kind::Single, true, Some(true)));
        assert_eq!((cell.place_right, cell.price_right), (None, Some(true)));
        let cell = judged("receive-buffer", 90, vec![window(Role::Sender, (20, 30))]);
        assert_eq!((cell.right, cell.host_right, cell.price_right), (true, Some(false), Some(false)));
        let second = vec![cause(Code::Loss, None, (1, 2)), window(Role::Receiver, (60, 80))];
        let cell = judged("receive-buffer", 90, second);
        assert_eq!((cell.right, cell.host_right, cell.named_code()), (false, None, Code::Loss));
    }

    #[test]
    fn a_fault_that_costs_little_must_hide_no_other() {
        let named = |code| judged("receive-buffer", 18, vec![cause(code, None, (1, 2))]);
        assert_eq!((named(Code::ReceiveWindow).kind, named(Code::ReceiveWindow).right), (Kind::Finding, true));
        assert!(!named(Code::Loss).right && judged("receive-buffer", 18, Vec::new()).right);
        assert!(!judged("healthy", 15, vec![cause(Code::Loss, None, (1, 2))]).right);
        assert!(judged("healthy", 15, Vec::new()).right);
    }

    /// One flow in two is on the good member.
    #[test]
    fn a_flow_that_does_not_meet_its_fault_needs_no_cause() {
        let carried = |mbit: u64| {
            let rtt = Nanos::from_millis(80);
            let measured = Measured { rtt, faulty: BitRate(MBIT), fixed: BitRate(90 * MBIT) };
            let cell = Cell::new(&find("ecmp-member").unwrap(), rtt, 1, Some(measured));
            cell.judged(&Diagnosis { goodput_bps: Some(mbit * MBIT), ..diagnosis(Vec::new()) })
        };
        assert_eq!((carried(88).kind, carried(88).right), (Kind::Finding, true));
        assert_eq!((carried(10).kind, carried(10).right), (Kind::Single, false));
    }

    /// A buffer that 80 ms need is no limit at 10 ms.
    #[test]
    fn over_another_round_trip_a_path_that_carries_its_rate_has_no_fault() {
        let carried = |mbit: u64, causes| {
            let cell = Cell::new(&find("receive-buffer").unwrap(), Nanos::from_millis(10), 1, None);
            cell.judged(&Diagnosis { goodput_bps: Some(mbit * MBIT), ..diagnosis(causes) })
        };
        let of = |cell: Cell| (cell.kind, cell.right);
        assert_eq!(of(carried(94, Vec::new())), (Kind::Finding, true));
        assert_eq!(of(carried(94, vec![cause(Code::Loss, None, (1, 2))])), (Kind::Finding, false));
        assert_eq!(of(carried(60, Vec::new())), (Kind::Single, false));
    }

    /// The second cause's worth has the first one's in it.
    #[test]
    fn a_pair_is_named_in_either_order() {
        let (window, buffer) = (cause(Code::ReceiveWindow, None, (5, 6)), cause(Code::SendBuffer, None, (70, 80)));
        let cell = judged("pair-buffers", 90, vec![window.clone(), buffer.clone()]);
        assert_eq!((cell.kind, cell.right, cell.price_right), (Kind::Pair, true, Some(true)));
        assert!(judged("pair-buffers", 90, vec![buffer.clone(), window.clone()]).right);
        assert!(!judged("pair-buffers", 90, vec![window, cause(Code::Loss, None, (5, 6)), buffer]).right);
    }

    #[test]
    fn an_open_price_is_wrong_only_where_it_is_too_high() {
        let open = |least: u64| {
            let worth = Interval { least: least * MBIT, most: None, basis: Basis::AtLeast };
            let cause = Cause { worth_bps: worth, ..cause(Code::ReceiveWindow, None, (0, 0)) };
            judged("receive-buffer", 90, vec![cause]).price_right
        };
        assert_eq!((open(60), open(120)), (None, Some(false)));
    }

    #[test]
    fn cells_without_a_diagnosis_are_counted_apart() {
        let right = judged("receive-buffer", 90, vec![cause(Code::ReceiveWindow, None, (60, 80))]);
        let healthy = judged("healthy", 90, Vec::new());
        let failed = judged("loss", 90, Vec::new()).failed("no lab");
        let summary = Summary::of(&[right, healthy, failed]);
        assert_eq!((summary.single, summary.failed), (Share { right: 1, of: 1 }, 1));
        assert_eq!(summary.confusion[&Code::None][&Code::None], 1);
        assert_eq!(summary.confusion[&Code::ReceiveWindow][&Code::ReceiveWindow], 1);
    }
}
