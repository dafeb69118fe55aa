//! What the run before promised, and what came.

use serde::{Deserialize, Serialize};

use crate::diagnosis::{Code, Diagnosis, Interval, about};

/// A promise counts as kept from this part of the promised rate on: of the goodput of then and the lower end of what fixing adds. It is chosen,
/// not measured.
pub const KEPT: f64 = 0.8;
/// From this change on the goodput is another: what is worth fixing raises it by as much.
const CHANGED: f64 = 1.3;

/// An earlier diagnosis of the same direction, compared with this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Before {
    /// What TCP carried then, payload bits per second; `null` if it was not measured.
    pub goodput_bps: Option<u64>,
    /// The first cause then; `null` if there was none.
    pub cause: Option<Code>,
    /// What removing that cause was said to add; `null` if there was none.
    pub promised_bps: Option<Interval>,
    /// Whether the earlier test saw too few losses: then the cause is worth at most `promised_bps`, and perhaps less.
    pub promise_is_upper_end: bool,
    /// Causes of the earlier diagnosis that are gone.
    pub gone: Vec<Code>,
    /// Causes that the earlier diagnosis did not have.
    pub new: Vec<Code>,
    /// The result of the change.
    pub outcome: Outcome,
    /// Options that differed then; they may change the goodput, too.
    #[serde(default)]
    pub differs: Vec<String>,
}

/// Whether a promise was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The goodput reaches at least 80 % of the promise: the earlier goodput plus the lower end of what the first cause was worth.
    Kept,
    /// The goodput is at least 1.3 times that of before, and below what was promised.
    Partly,
    /// The promise is not kept, and the goodput has not changed.
    NotFixed,
    /// There was no cause then, and the goodput has not changed.
    Unchanged,
    /// The goodput is 1.3 times lower than before, or less.
    Worse,
    /// One of both runs did not measure TCP.
    Unknown,
}

impl Before {
    /// `earlier` beside `now`.
    pub fn of(earlier: &Diagnosis, now: &Diagnosis) -> Self {
        let codes = |diagnosis: &Diagnosis| -> Vec<Code> { diagnosis.causes.iter().map(|it| it.bound.code).collect() };
        let (then_codes, now_codes) = (codes(earlier), codes(now));
        let less = |from: &[Code], by: &[Code]| from.iter().copied().filter(|code| !by.contains(code)).collect();
        let promised_bps = earlier.causes.first().map(|cause| cause.worth_bps);
        let outcome = match (earlier.goodput_bps, now.goodput_bps) {
            (Some(then), Some(came)) => {
                let (then, came) = (then as f64, came as f64);
                match promised_bps {
                    Some(promised) if came >= KEPT * (then + promised.least as f64) => Outcome::Kept,
                    _ if came * CHANGED <= then => Outcome::Worse,
                    Some(_) if came >= CHANGED * then => Outcome::Partly,
                    Some(_) => Outcome::NotFixed,
                    None => Outcome::Unchanged,
                }
            }
            _ => Outcome::Unknown,
        };
        Self {
            goodput_bps: earlier.goodput_bps,
            cause: then_codes.first().copied(),
            promised_bps,
            promise_is_upper_end: earlier.causes.first().is_some_and(|cause| cause.worth_is_upper_end),
            gone: less(&then_codes, &now_codes),
            new: less(&now_codes, &then_codes),
            outcome,
            differs: Vec::new(),
        }
    }

    /// For people; the goodput of now stands beside it.
    pub fn text(&self) -> String {
        let then = self.goodput_bps.map_or("TCP was not measured".into(), |goodput| format!("{}/s", about(goodput)));
        let promised = match (self.cause, self.promised_bps) {
            (Some(code), Some(worth)) => {
                let most = if self.promise_is_upper_end { "up to " } else { "" };
                format!("; removing {} was worth {most}{}", code.words(), worth.text())
            }
            _ => "; no cause was named".into(),
        };
        let outcome = match self.outcome {
            Outcome::Kept => "the promise was kept",
            Outcome::Partly => "the promise was kept in part",
            Outcome::NotFixed => "no faster now",
            Outcome::Unchanged => "no change",
            Outcome::Worse => "slower now",
            Outcome::Unknown => "the result is not known",
        };
        let otherwise = if self.differs.is_empty() {
            String::new()
        } else {
            format!("; with other options then: {}", self.differs.join("; "))
        };
        format!("{then}{promised}: {outcome}{otherwise}")
    }
}
