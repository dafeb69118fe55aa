//! What is remembered of alarms, kept on the disk: which are open, which ended, who was told what, and what came of their diagnoses. A
//! coordinator that starts again goes on from there.
//!
//! An attempt is written down before it is made, its success after: a coordinator that is killed between the two tells an alarm twice rather
//! than never.

use std::collections::BTreeMap;

use longhaul_units::read_text;
use serde::{Deserialize, Serialize};

use super::named::{DiagnosisOfAlarm, Progress, State};
use super::{Alarm, AlarmOptions, command, webhook};
use crate::coordinator::WANTED_NS;
use crate::diagnoses::{Asked, NO_RESULT};
use crate::error::Failure;
use crate::folder::Folder;
use crate::store::{Diagnosis, Measured, Measurement, Wanted};

const FILE: &str = "alarms.json";
/// Twice what [`KEPT_MOST`] alarms with several suspects take.
const FILE_BYTES_MOST: u64 = 8 << 20;
const SECOND_NS: u64 = 1_000_000_000;
/// An alarm that was gone for less than this is the same one: at the edge of what is judged it may come and go.
const SAME_WITHIN_NS: u64 = 6 * 3600 * SECOND_NS;
/// An alarm has ended when it is gone for this: the last results of an hour take so long to arrive.
const ENDS_AFTER_NS: u64 = 120 * SECOND_NS;
/// Alarms that ended are shown for this.
const SHOWN_NS: u64 = 24 * 3600 * SECOND_NS;
/// The first attempt that fails is made again after this; the time doubles with each.
const FIRST_WAIT_NS: u64 = 2 * SECOND_NS;
/// Attempts, over 34 minutes.
const ATTEMPTS_MOST: u32 = 11;
/// Alarms that are remembered at most: a mesh of 500 sites may have as many.
const KEPT_MOST: usize = 2000;

/// What one receiver of alarms knows of one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Attempts {
    /// What it was told last.
    knows: Option<State>,
    /// What it is being told.
    tells: Option<State>,
    /// Attempts of that.
    made: u32,
    next_ns: u64,
}

impl Attempts {
    /// Whether it shall be told this now. Who was not told that an alarm is open is not told that it ended.
    fn is_due(&self, state: State, now: u64) -> bool {
        let is_news = match state {
            State::Open => self.knows != Some(State::Open),
            State::Over => self.knows == Some(State::Open),
        };
        let is_first = self.tells != Some(state);
        is_news && (is_first || (self.made < ATTEMPTS_MOST && now >= self.next_ns))
    }

    fn begin(&mut self, state: State, now: u64) {
        if self.tells != Some(state) {
            (self.tells, self.made) = (Some(state), 0);
        }
        self.next_ns = now.saturating_add(FIRST_WAIT_NS << self.made.min(20));
        self.made += 1;
    }

    fn end(&mut self, state: State) {
        self.knows = Some(state);
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    alarm: Alarm,
    /// When it was first judged not to be open any more.
    gone_ns: Option<u64>,
    /// Whether a site was asked for a diagnosis, where the mesh has a test for it.
    #[serde(default)]
    diagnosed: bool,
    /// What was asked and has not come.
    #[serde(default)]
    asked: Option<Asked>,
    #[serde(default)]
    command: Attempts,
    #[serde(default)]
    webhook: Attempts,
}

impl Known {
    fn new(alarm: Alarm) -> Self {
        let (command, webhook) = (Attempts::default(), Attempts::default());
        Self { alarm, gone_ns: None, diagnosed: false, asked: None, command, webhook }
    }

    /// For how long it is gone at `now`.
    fn gone_for(&self, now: u64) -> u64 {
        self.gone_ns.map_or(0, |gone| now.saturating_sub(gone))
    }

    /// It is open now.
    fn go_on(&mut self, alarm: &Alarm, now: u64) {
        if self.gone_for(now) >= SAME_WITHIN_NS {
            *self = Self::new(alarm.clone());
        }
        let diagnosis = if self.diagnosed { self.alarm.diagnosis.clone() } else { alarm.diagnosis.clone() };
        (self.alarm, self.gone_ns) = (Alarm { diagnosis, ..alarm.clone() }, None);
    }

    /// It is not open now.
    fn rest(&mut self, now: u64) {
        let gone = *self.gone_ns.get_or_insert(now);
        if self.alarm.state == State::Open && self.gone_for(now) >= ENDS_AFTER_NS {
            self.alarm.end(gone);
        }
    }
}

/// What is known of each alarm, by its id.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told(BTreeMap<String, Known>);

impl Told {
    /// What a coordinator before this one wrote down. What cannot be read is nothing: alarms are told again.
    pub(super) fn load(folder: &Folder) -> Self {
        let text = read_text(&folder.file(FILE), FILE_BYTES_MOST).ok();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    fn save(&self, folder: &Folder) -> Result<(), Failure> {
        folder.write(FILE, &serde_json::to_string(self).map_err(Failure::new)?)
    }

    /// These alarms are open at `now`, and no others.
    pub(super) fn open(&mut self, folder: &Folder, alarms: &[Alarm], now: u64) -> Result<(), Failure> {
        self.set(alarms, now);
        self.save(folder)
    }

    fn set(&mut self, alarms: &[Alarm], now: u64) {
        self.0.retain(|_, known| known.gone_for(now) < SHOWN_NS);
        for alarm in alarms {
            if let Some(known) = self.0.get_mut(&alarm.id) {
                known.go_on(alarm, now);
            } else if self.0.len() < KEPT_MOST {
                self.0.insert(alarm.id.clone(), Known::new(alarm.clone()));
            }
        }
        self.rest(alarms, now);
    }

    fn rest(&mut self, alarms: &[Alarm], now: u64) {
        let is_open = |id: &String| alarms.iter().any(|alarm| alarm.id == *id);
        self.0.iter_mut().filter(|(id, _)| !is_open(id)).for_each(|(_, known)| known.rest(now));
    }

    /// Alarms that ended in the last day, the latest first.
    pub(super) fn over(&mut self, alarms: &[Alarm], now: u64) -> Vec<Alarm> {
        self.rest(alarms, now);
        let over = self.0.values().filter(|known| known.alarm.state == State::Over);
        let mut over: Vec<&Known> = over.collect();
        over.sort_by_key(|known| std::cmp::Reverse(known.gone_ns));
        over.into_iter().map(|known| known.alarm.clone()).collect()
    }

    /// Whether a diagnosis is to be asked for, for this alarm.
    pub(super) fn wants_diagnosis(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(|known| !known.diagnosed)
    }

    /// A diagnosis was asked for, if there can be one.
    pub(super) fn is_asked(&mut self, folder: &Folder, id: &str, asked: Option<Asked>) -> Result<(), Failure> {
        if let Some(known) = self.0.get_mut(id) {
            known.diagnosed = true;
            match &asked {
                Some(asked) => known.alarm.diagnosis = DiagnosisOfAlarm::asked(asked),
                None if known.alarm.diagnosis.progress == Progress::Due => {
                    known.alarm.diagnosis = DiagnosisOfAlarm::none(NO_RESULT);
                }
                None => {}
            }
            known.asked = asked;
        }
        self.save(folder)
    }

    /// Diagnoses that were asked for and have not come, each with when it was asked for: nanoseconds since 1970.
    pub(super) fn asked(&self) -> Vec<(Wanted, i64)> {
        let asked = self.0.values().filter_map(|known| known.asked.as_ref());
        asked.map(|asked| (asked.wanted.clone(), asked.at_ns)).collect()
    }

    /// These diagnoses have come. Who was asked more than a day ago is not asked any more.
    pub(super) fn take_answers(
        &mut self,
        folder: &Folder,
        answers: &[Measurement],
        now_ns: i64,
    ) -> Result<(), Failure> {
        if self.answer(answers, now_ns) { self.save(folder) } else { Ok(()) }
    }

    fn answer(&mut self, answers: &[Measurement], now_ns: i64) -> bool {
        let mut has_changed = false;
        for known in self.0.values_mut() {
            let Some(asked) = &known.asked else { continue };
            if let Some((test, diagnosis)) = answers.iter().find_map(|test| answer_to(asked, test)) {
                known.alarm.diagnosis.answer(test, diagnosis.failed.as_deref());
            } else if now_ns.saturating_sub(asked.at_ns) > WANTED_NS {
                known.alarm.diagnosis.give_up("no site began it within a day");
            } else {
                continue;
            }
            (known.asked, has_changed) = (None, true);
        }
        has_changed
    }

    /// Alarms with what is known of their diagnoses.
    pub(super) fn with_diagnoses(&self, alarms: &[Alarm]) -> Vec<Alarm> {
        let known = |alarm: &Alarm| self.0.get(&alarm.id).map_or(alarm, |known| &known.alarm).clone();
        alarms.iter().map(known).collect()
    }

    /// Tells each who asked for it what it does not know yet and what is due.
    pub(super) fn tell(&mut self, folder: &Folder, options: &AlarmOptions, now: u64) -> Result<(), Failure> {
        let alarms: Vec<Alarm> = self.0.values().map(|known| known.alarm.clone()).collect();
        for alarm in &alarms {
            if let Some(program) = &options.on_alarm
                && self.begin(folder, alarm, now, |known| &mut known.command)?
            {
                command::run(program, alarm)?;
                self.end(folder, alarm, |known| &mut known.command)?;
            }
            if let Some(address) = &options.webhook
                && self.begin(folder, alarm, now, |known| &mut known.webhook)?
            {
                webhook::post(address, alarm)?;
                self.end(folder, alarm, |known| &mut known.webhook)?;
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        folder: &Folder,
        alarm: &Alarm,
        now: u64,
        of: fn(&mut Known) -> &mut Attempts,
    ) -> Result<bool, Failure> {
        let attempts = self.0.get_mut(&alarm.id).map(of);
        let Some(attempts) = attempts.filter(|attempts| attempts.is_due(alarm.state, now)) else {
            return Ok(false);
        };
        attempts.begin(alarm.state, now);
        self.save(folder).map(|()| true)
    }

    fn end(&mut self, folder: &Folder, alarm: &Alarm, of: fn(&mut Known) -> &mut Attempts) -> Result<(), Failure> {
        if let Some(attempts) = self.0.get_mut(&alarm.id).map(of) {
            attempts.end(alarm.state);
        }
        self.save(folder)
    }
}

/// The test and its diagnosis, if they are what was asked for.
fn answer_to<'a>(asked: &Asked, test: &'a Measurement) -> Option<(&'a Measurement, &'a Diagnosis)> {
    let Measured::Diagnose(diagnosis) = &test.measured else { return None };
    let Wanted { alarm, sender, receiver, .. } = &asked.wanted;
    let is_it = (&diagnosis.alarm, &test.sender, &test.receiver) == (alarm, sender, receiver);
    is_it.then_some((test, diagnosis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_wait_twice_as_long_each_time_and_end() {
        let mut attempts = Attempts::default();
        let mut at = 0;
        let mut waits = Vec::new();
        while attempts.made < ATTEMPTS_MOST {
            assert!(attempts.is_due(State::Open, at));
            attempts.begin(State::Open, at);
            assert!(!attempts.is_due(State::Open, attempts.next_ns - 1));
            waits.push((attempts.next_ns - at) / SECOND_NS);
            at = attempts.next_ns;
        }
        assert_eq!(waits[..4], [2, 4, 8, 16]);
        assert!(!attempts.is_due(State::Open, u64::MAX));
        assert_eq!(waits[..10].iter().sum::<u64>(), 2046);
    }

    fn alarm(id: &str) -> Alarm {
        Alarm {
            id: id.to_owned(),
            state: State::Open,
            ended: None,
            suspects: Vec::new(),
            place: String::new(),
            since: None,
            raised: String::new(),
            loss: 0.01,
            log10_odds: 10.0,
            text: "what a receives loses 1.00 % more than usual".to_owned(),
            diagnosis: DiagnosisOfAlarm::default(),
        }
    }

    /// What is due for a program, and told it at once.
    fn tell(told: &mut Told, now: u64) -> Vec<(String, State)> {
        let mut said = Vec::new();
        for (id, known) in &mut told.0 {
            let state = known.alarm.state;
            if known.command.is_due(state, now) {
                known.command.begin(state, now);
                known.command.end(state);
                said.push((id.clone(), state));
            }
        }
        said
    }

    #[test]
    fn an_end_is_told_once_and_a_return_within_six_hours_is_the_same_alarm() {
        let (mut told, hour) = (Told::default(), 3600 * SECOND_NS);
        let a = [alarm("a")];
        let (open, over) = ([("a".to_owned(), State::Open)], [("a".to_owned(), State::Over)]);
        told.set(&a, 0);
        assert_eq!(tell(&mut told, 0), open);
        assert_eq!(tell(&mut told, 0), []);
        assert!(told.wants_diagnosis("a"));
        told.0.get_mut("a").unwrap().diagnosed = true;
        // It goes and comes within the time in which results arrive.
        told.set(&[], hour - ENDS_AFTER_NS);
        told.set(&a, hour - 1);
        told.set(&[], hour);
        assert!(told.over(&[], hour + ENDS_AFTER_NS - 1).is_empty());
        assert_eq!(tell(&mut told, hour), []);
        let shown = told.over(&[], hour + ENDS_AFTER_NS);
        assert_eq!((shown.len(), shown[0].ended.as_deref()), (1, Some("1970-01-01T01:00:00.000Z")));
        assert_eq!(shown[0].text, "what a receives lost 1.00 % more than usual; over since 1970-01-01T01:00:00.000Z");
        assert_eq!(tell(&mut told, 2 * hour), over);
        assert_eq!(tell(&mut told, 2 * hour), []);
        // It comes back: the same alarm, so that it is told again, and not diagnosed again.
        told.set(&a, 6 * hour);
        assert_eq!(tell(&mut told, 6 * hour), open);
        assert!(!told.wants_diagnosis("a") && told.over(&a, 6 * hour).is_empty());
        told.set(&[], 7 * hour);
        told.set(&[], 8 * hour);
        assert_eq!(tell(&mut told, 8 * hour), over);
        // After six hours it is another one.
        told.set(&a, 13 * hour);
        assert_eq!(tell(&mut told, 13 * hour), open);
        assert!(told.wants_diagnosis("a"));
        // It is shown for a day.
        told.set(&[], 14 * hour);
        assert_eq!(told.over(&[], 15 * hour).len(), 1);
        told.set(&[], 14 * hour + SHOWN_NS);
        assert!(told.0.is_empty());
    }

    #[test]
    fn who_was_not_told_of_an_alarm_is_not_told_of_its_end() {
        let mut told = Told::default();
        told.set(&[alarm("a")], 0);
        told.0.get_mut("a").unwrap().command.begin(State::Open, 0);
        told.set(&[], 0);
        assert_eq!(told.over(&[], ENDS_AFTER_NS).len(), 1);
        assert_eq!(tell(&mut told, ENDS_AFTER_NS), []);
    }

    fn asked() -> Asked {
        let word = str::to_owned;
        Asked {
            at_ns: 5,
            wanted: Wanted { alarm: word("7"), test: word("why"), sender: word("a"), receiver: word("b") },
        }
    }

    fn diagnosis(alarm: &str, [sender, receiver]: [&str; 2], failed: Option<&str>) -> Measurement {
        let diagnosis = Diagnosis {
            alarm: alarm.to_owned(),
            target_bps: None,
            goodput_bps: None,
            causes: Vec::new(),
            failed: failed.map(str::to_owned),
        };
        Measurement {
            id: "f".repeat(32),
            test: "why".to_owned(),
            sender: sender.to_owned(),
            receiver: receiver.to_owned(),
            at_ns: 1_000_000_000,
            measured: Measured::Diagnose(diagnosis),
        }
    }

    /// An alarm whose diagnosis was asked for.
    fn told_and_asked() -> Told {
        let mut told = Told::default();
        told.set(&[alarm("a")], 0);
        let known = told.0.get_mut("a").unwrap();
        (known.diagnosed, known.asked) = (true, Some(asked()));
        known.alarm.diagnosis = DiagnosisOfAlarm::asked(&asked());
        told
    }

    #[test]
    fn an_alarm_leads_to_the_diagnosis_that_was_asked_for() {
        let mut told = told_and_asked();
        assert_eq!(told.asked(), [(asked().wanted, 5)]);
        // Of another alarm, and of another path by a site that knows the number.
        assert!(!told.answer(&[diagnosis("8", ["a", "b"], None), diagnosis("7", ["a", "c"], None)], 6));
        assert_eq!(told.with_diagnoses(&[alarm("a")])[0].diagnosis.progress, Progress::Asked);
        assert!(told.answer(&[diagnosis("7", ["a", "b"], None)], 6));
        assert_eq!(told.asked(), []);
        // The alarm is judged again, ends, and comes back: it is the same diagnosis.
        for alarms in [&[alarm("a")][..], &[], &[alarm("a")]] {
            told.set(alarms, 10 * SECOND_NS);
            let shown = &told.0["a"].alarm.diagnosis;
            assert_eq!((shown.progress, shown.test.as_deref()), (Progress::Done, Some(&*"f".repeat(32))));
            assert_eq!((shown.at.as_deref(), &shown.why), (Some("1970-01-01T00:00:01.000Z"), &None));
            assert_eq!((shown.sender.as_deref(), shown.receiver.as_deref()), (Some("a"), Some("b")));
        }
    }

    #[test]
    fn it_is_said_why_an_alarm_has_no_diagnosis() {
        let mut told = told_and_asked();
        assert!(told.answer(&[diagnosis("7", ["a", "b"], Some("the partner refuses"))], 6));
        let shown = &told.0["a"].alarm.diagnosis;
        assert_eq!((shown.progress, shown.why.as_deref()), (Progress::None, Some("the partner refuses")));
        assert!(shown.test.is_some());
        let mut told = told_and_asked();
        assert!(!told.answer(&[], 5 + WANTED_NS));
        assert!(told.answer(&[], 6 + WANTED_NS));
        let shown = &told.0["a"].alarm.diagnosis;
        assert_eq!((shown.progress, shown.test.as_deref()), (Progress::None, None));
        assert!(shown.why.as_deref().is_some_and(|why| why.contains("within a day")));
    }
}
