//! Running the catalogue: each fault in a lab of its own, and `longhaul diagnose` or `longhaul tcp` in it.

use std::fmt;

use longhaul_diagnosis::{Diagnosis, Evidence, diagnose};
use longhaul_kernel::signals::Stop;
use longhaul_lab::LabSpec;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;
use serde_json::Value;

use super::making::{Doing, FaultLab};
use super::program::Programs;
use super::score::{Cell, Tuned};
use super::spec::{Fault, Form, Measured};
use super::void;
use crate::machine::Machine;

/// What a command takes beside the time of its tests, at most: a path that loses much takes long to say hello.
const PATIENCE: Nanos = Nanos::from_secs(90);
/// How often a test is made anew that the emulator spoiled: the machine may have other things to do.
const TRIES: usize = 3;
/// A diagnosis makes several tests of the time that it is given.
const TESTS_MOST: u64 = 12;

/// The forms of `longhaul diagnose` that make no test.
pub(super) const WITHOUT_TEST: [Form; 3] = [Form::Sender, Form::Receiver, Form::Packets];

/// What happens while the catalogue runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A fault at a round trip begins.
    Begins(&'a Fault, Nanos),
    /// It was diagnosed once.
    Diagnosed(&'a Cell),
    /// It was measured with the fault and without.
    Measured(&'a Price),
}

/// Keeps the JSON of a diagnosis under a name; says why it could not.
pub type Keep<'a> = dyn Fn(&str, &str) -> Result<(), String> + 'a;

/// What a fault costs, measured by fixing it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Price {
    /// The fault's name.
    pub fault: String,
    /// The path's round trip.
    pub rtt_ns: u64,
    /// Payload that TCP carried with it, bits per second, with each seed.
    pub faulty_bps: Vec<u64>,
    /// The same, fixed.
    pub fixed_bps: Vec<u64>,
    /// Tests that were repeated because the machine disturbed them.
    pub void_runs: usize,
    /// Why a test is missing; empty if none is.
    pub error: String,
}

/// Runs the catalogue.
pub struct Runner<'a> {
    /// Starts programs in the labs.
    pub programs: &'a Programs,
    /// The labs; seeds and names are those of the runs.
    pub spec: &'a LabSpec,
    /// Ends the test that runs and begins no other.
    pub stop: Stop,
    /// The time of each test.
    pub time: Nanos,
    /// The seeds of the paths' random numbers: one lab each.
    pub seeds: std::ops::RangeInclusive<u64>,
    /// Where a cause is at a host, have `longhaul tune` fix it by the diagnosis, and see what comes of it.
    pub tune: bool,
    /// Keeps the evidence; `None`: nowhere.
    pub keep: Option<&'a Keep<'a>>,
    /// Is told what happens.
    pub tell: &'a dyn Fn(Event<'_>),
}

impl fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("time", &self.time).field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

impl Runner<'_> {
    /// Diagnoses each of `faults` with each seed, or those before a stop.
    pub fn diagnose(&self, faults: &[(Fault, Nanos)]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (fault, rtt) in faults {
            (self.tell)(Event::Begins(fault, *rtt));
            for seed in self.seeds.clone() {
                if self.stop.requested().is_some() {
                    return cells;
                }
                let doing = Doing { fault, rtt: *rtt, seed, faulty: true, spec: self.spec };
                let cell = Cell::new(fault, *rtt, seed, fault.measured_at(*rtt).copied());
                let Asked { answer, void_runs } = self.diagnose_once(&doing);
                let cell = match answer {
                    Ok((diagnosis, tuned)) => cell.judged(&diagnosis).tuned(tuned),
                    // What was cut short says nothing.
                    Err(_) if self.stop.requested().is_some() => return cells,
                    Err(why) => cell.failed(why),
                };
                let cell = cell.with_void_runs(void_runs);
                (self.tell)(Event::Diagnosed(&cell));
                cells.push(cell);
            }
        }
        cells
    }

    /// Measures what each of `faults` costs, by tests with it and without it, or those before a stop.
    pub fn measure(&self, faults: &[(Fault, Nanos)]) -> Vec<Price> {
        let mut prices = Vec::new();
        // Faults of one path and one control are one path once they are fixed.
        let mut fixed: Vec<(Healthy<'_>, u64)> = Vec::new();
        for (fault, rtt) in faults {
            (self.tell)(Event::Begins(fault, *rtt));
            let mut price = Price {
                fault: fault.name.clone(),
                rtt_ns: rtt.0,
                faulty_bps: Vec::new(),
                fixed_bps: Vec::new(),
                void_runs: 0,
                error: String::new(),
            };
            for (seed, faulty) in self.seeds.clone().flat_map(|seed| [(seed, true), (seed, false)]) {
                let doing = Doing { fault, rtt: *rtt, seed, faulty, spec: self.spec };
                let healthy = Healthy::of(&doing);
                let before = fixed.iter().find(|(known, _)| !faulty && *known == healthy).map(|(_, bps)| *bps);
                let tested = before.map_or_else(
                    || {
                        let Asked { answer, void_runs } = self.goodput(&doing);
                        price.void_runs += void_runs;
                        answer
                    },
                    Ok,
                );
                if self.stop.requested().is_some() {
                    return prices;
                }
                if let (false, None, Ok(bps)) = (faulty, before, &tested) {
                    fixed.push((healthy, *bps));
                }
                match tested {
                    Ok(bps) if faulty => price.faulty_bps.push(bps),
                    Ok(bps) => price.fixed_bps.push(bps),
                    Err(why) => price.error = why,
                }
            }
            (self.tell)(Event::Measured(&price));
            prices.push(price);
        }
        prices
    }

    fn diagnose_once(&self, doing: &Doing<'_>) -> Asked<(Diagnosis, Option<Tuned>)> {
        let fault = doing.fault;
        let mut words = self.words("diagnose", doing);
        words.extend(["--rate".into(), fault.rate.0.to_string()]);
        let time = Nanos(self.time.0.saturating_mul(TESTS_MOST)) + PATIENCE;
        let tune = |lab: &FaultLab, said: &str| if self.tune { self.tuned(lab, doing, said) } else { Ok(None) };
        let Asked { answer, void_runs } = self.ask(doing, &|lab| self.longhaul(lab, &words, time), tune);
        let answer = answer.and_then(|(said, tuned)| {
            self.keep(doing, Form::Test, &said)?;
            Ok((diagnosis_of(Form::Test, &said)?, tuned))
        });
        Asked { answer, void_runs }
    }

    /// Keeps what a form of `longhaul diagnose` said.
    pub(super) fn keep(&self, doing: &Doing<'_>, form: Form, said: &str) -> Result<(), String> {
        self.keep.map_or(Ok(()), |keep| keep(&evidence_name(&doing.fault.name, doing.rtt, doing.seed, form), said))
    }

    /// What one flow carries. A test that does not come to its end carries nothing: that is what a black hole does.
    fn goodput(&self, doing: &Doing<'_>) -> Asked<u64> {
        let words = self.words("tcp", doing);
        let test = |lab: &FaultLab| self.longhaul(lab, &words, self.time + PATIENCE);
        let Asked { answer, void_runs } = self.ask(doing, &test, |_, _| Ok(()));
        let bps = |said: String| {
            let said: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
            said["result"]["goodput_bps"].as_u64().ok_or_else(|| "the result has no goodput".to_owned())
        };
        Asked { answer: answer.and_then(|(said, ())| bps(said)), void_runs }
    }

    /// The words of a test.
    pub(super) fn words(&self, command: &str, doing: &Doing<'_>) -> Vec<String> {
        let fault = doing.fault;
        let control = &fault.making.control;
        let control = if doing.faulty && !control.is_empty() { control } else { &fault.congestion };
        let mut words: Vec<String> = [command, "--no-auth", "--json", "-C", control, "-t"].map(String::from).to_vec();
        words.push(self.time.to_string());
        words.extend(fault.reverse.then(|| "-R".to_owned()));
        if doing.faulty {
            words.extend(fault.making.test.iter().cloned());
        }
        words
    }

    /// What longhaul says on the client that is told `words` and the server.
    pub(super) fn longhaul(&self, lab: &FaultLab, words: &[String], time: Nanos) -> Result<String, String> {
        let words: Vec<String> = words.iter().cloned().chain([lab.server().to_string()]).collect();
        lab.longhaul(&words, time, self.stop).map_err(|error| error.to_string())?.success()
    }

    /// Sets up the lab, runs `says` in it, which gives the JSON of a test or of a diagnosis, then `after`, and takes the lab down. Repeats all
    /// this if the machine disturbed it.
    pub(super) fn ask<T>(
        &self,
        doing: &Doing<'_>,
        says: &dyn Fn(&FaultLab) -> Result<String, String>,
        after: impl Fn(&FaultLab, &str) -> Result<T, String>,
    ) -> Asked<(String, T)> {
        let mut void_runs = 0;
        loop {
            let answer = match self.ask_once(doing, says, &after) {
                Ok(Tried::Done(answer)) => answer,
                Ok(Tried::Spoiled(why)) => {
                    void_runs += 1;
                    if void_runs < TRIES {
                        continue;
                    }
                    Err(format!("void: {why}"))
                }
                Err(why) => Err(why),
            };
            return Asked { answer, void_runs };
        }
    }

    fn ask_once<T>(
        &self,
        doing: &Doing<'_>,
        says: &dyn Fn(&FaultLab) -> Result<String, String>,
        after: &impl Fn(&FaultLab, &str) -> Result<T, String>,
    ) -> Result<Tried<(String, T)>, String> {
        let failed = |error: super::MakingError| error.to_string();
        let mut lab = FaultLab::up(doing, self.programs).map_err(failed)?;
        let machine = Machine::begins();
        let said = says(&lab);
        let taken = machine.taken();
        // A fault that takes the CPU is to be seen.
        let waited = said.as_ref().ok().filter(|_| !doing.fault.takes_a_cpu()).and_then(|said| void::waited(said));
        let answer = said.and_then(|said| {
            let more = after(&lab, &said)?;
            Ok((said, more))
        });
        let lacking = lab.lacks_a_program();
        let status = lab.down().map_err(failed)?;
        if lacking {
            return Err("a program beside the test ended before the test did".into());
        }
        let spoiled = void::by_emulator(&status, doing.rtt).or(taken).or(waited);
        Ok(spoiled.map_or(Tried::Done(answer), Tried::Spoiled))
    }
}

/// What came of a command in a lab.
enum Tried<T> {
    /// This.
    Done(Result<T, String>),
    /// The lab was not what it should have been: how.
    Spoiled(String),
}

/// An answer, and how many runs before it were void.
pub(super) struct Asked<T> {
    pub(super) answer: Result<T, String>,
    pub(super) void_runs: usize,
}

/// What sets fixed paths apart.
#[derive(Debug, PartialEq)]
struct Healthy<'a> {
    rate: BitRate,
    rtt: Nanos,
    seed: u64,
    congestion: &'a str,
    reverse: bool,
    router: bool,
}

impl<'a> Healthy<'a> {
    fn of(doing: &Doing<'a>) -> Self {
        let fault = doing.fault;
        Self {
            rate: fault.rate,
            rtt: doing.rtt,
            seed: doing.seed,
            congestion: &fault.congestion,
            reverse: fault.reverse,
            router: fault.making.has_router(),
        }
    }
}

/// The name under which what a form of `longhaul diagnose` said is kept: `FAULT-RTT-SEED.json` of the tests, `FAULT-RTT-SEED-FORM.json`.
pub fn evidence_name(fault: &str, rtt: Nanos, seed: u64, form: Form) -> String {
    match form {
        Form::Test => format!("{fault}-{rtt}-{seed}.json"),
        form => format!("{fault}-{rtt}-{seed}-{}.json", form.name()),
    }
}

/// Fault, round trip, seed and form of such a name.
pub fn of_evidence_name(name: &str) -> Option<(&str, Nanos, u64, Form)> {
    let name = name.strip_suffix(".json")?;
    let of_form = |form: Form| Some((name.strip_suffix(form.name())?.strip_suffix('-')?, form));
    let (front, form) = WITHOUT_TEST.into_iter().find_map(of_form).unwrap_or((name, Form::Test));
    let (front, seed) = front.rsplit_once('-')?;
    let (fault, rtt) = front.rsplit_once('-')?;
    Some((fault, rtt.parse().ok()?, seed.parse().ok()?, form))
}

/// Where the JSON of `longhaul diagnose` has the answer. Without a test that is the connection with the most payload: the test's own.
fn answer(form: Form, said: &str) -> Result<Value, String> {
    let mut said: Value = serde_json::from_str(said).map_err(|error| format!("the diagnosis is not JSON: {error}"))?;
    let answer = match form {
        Form::Test => said.get_mut("result").map_or(Value::Null, Value::take),
        Form::Sender | Form::Receiver | Form::Packets => {
            said.pointer_mut("/result/flows/0").map_or(Value::Null, Value::take)
        }
    };
    if answer.is_null() { Err("no connection was diagnosed".into()) } else { Ok(answer) }
}

/// What the JSON of `longhaul diagnose` says.
pub(super) fn diagnosis_of(form: Form, said: &str) -> Result<Diagnosis, String> {
    serde_json::from_value(answer(form, said)?).map_err(|error| format!("the diagnosis cannot be read: {error}"))
}

/// Judges the kept JSON `said` of a diagnosis by the rules as they are now.
pub fn replay(fault: &Fault, rtt: Nanos, seed: u64, form: Form, said: &str) -> Cell {
    let cell = Cell::new(fault, rtt, seed, fault.measured_at(rtt).copied()).by(form, fault);
    let evidence = |said: &str| -> Result<Evidence, String> {
        let evidence = answer(form, said)?.get_mut("evidence").map_or(Value::Null, Value::take);
        serde_json::from_value(evidence).map_err(|error| format!("the evidence cannot be read: {error}"))
    };
    match evidence(said) {
        Ok(evidence) => cell.judged(&diagnose(&evidence)),
        Err(why) => cell.failed(why),
    }
}

impl Price {
    /// The means, where both were measured.
    pub fn means(&self) -> Option<Measured> {
        let mean = |all: &[u64]| (!all.is_empty()).then(|| BitRate(all.iter().sum::<u64>() / all.len() as u64));
        Some(Measured { rtt: Nanos(self.rtt_ns), faulty: mean(&self.faulty_bps)?, fixed: mean(&self.fixed_bps)? })
    }
}
