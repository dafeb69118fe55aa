//! What is asked: a span of time, a metric.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Refusal;
use crate::coordinator::now_ns;
use crate::store::{DAY_NS, Listed, Metric, Span};

/// Days of a span at most: ten years.
const DAYS_MOST: u32 = 3660;
/// Times that a store can have, in seconds since 1970: to the year 2200.
const SECONDS_MOST: i64 = 7_258_118_400;

/// A span of time.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskedSpan {
    /// So many days, from 1 to 3660. Two or less are cut to hours, more to days.
    #[param(minimum = 1, maximum = 3660, default = 1)]
    days: Option<u32>,
    /// The end of the span, RFC 3339; without: now. The hour or day with it is the last one.
    until: Option<String>,
    /// What is asked for: `loss` of UDP packets, `rtt` or `goodput`; of single tests `diagnosis`, too.
    metric: Option<String>,
}

/// When one test began.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskedMoment {
    /// When the test began, as lists of tests say. Without it the test is one of the last two days, and of the latest 50,000 of its kind.
    at: Option<String>,
}

/// How many tests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskedNext {
    /// So many tests, from 1 to 500.
    #[param(minimum = 1, maximum = 500, default = 20)]
    next: Option<usize>,
}

/// A question as it came.
pub(super) type Asked<T> = Result<Query<T>, QueryRejection>;

/// What is asked, or why it is no question.
pub(super) fn asked<T>(query: Asked<T>) -> Result<T, Refusal> {
    query.map(|Query(asked)| asked).map_err(|error| wrong(error.body_text()))
}

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, message)
}

impl AskedSpan {
    /// The span.
    pub(super) fn span(&self, days_without: u32) -> Result<Span, Refusal> {
        let days = self.days.unwrap_or(days_without);
        if !(1..=DAYS_MOST).contains(&days) {
            return Err(wrong(format!("days={days}: use 1 to {DAYS_MOST}")));
        }
        let until = match &self.until {
            None => i64::try_from(now_ns()).unwrap_or(i64::MAX),
            Some(text) => moment("until", text)?,
        };
        Ok(Span::ending(until, i64::from(days) * DAY_NS))
    }

    /// The metric; `None`: the loss of UDP packets.
    pub(super) fn metric(&self) -> Result<Option<Metric>, Refusal> {
        match self.metric.as_deref() {
            None | Some("loss") => Ok(None),
            Some("rtt") => Ok(Some(Metric::RoundTrip)),
            Some("goodput") => Ok(Some(Metric::Goodput)),
            Some(_) => Err(wrong("metric: use loss, rtt or goodput")),
        }
    }

    /// Which single tests; `None`: those of UDP packets.
    pub(super) fn listed(&self) -> Result<Option<Listed>, Refusal> {
        match self.metric.as_deref() {
            None | Some("loss") => Ok(None),
            Some("rtt") => Ok(Some(Listed::RoundTrips)),
            Some("goodput") => Ok(Some(Listed::Tcp)),
            Some("diagnosis") => Ok(Some(Listed::Diagnoses)),
            Some(_) => Err(wrong("metric: use loss, rtt, goodput or diagnosis")),
        }
    }
}

fn moment(name: &str, text: &str) -> Result<i64, Refusal> {
    let time: Option<Timestamp> = text.parse().ok();
    let in_range = time.filter(|time| (0..=SECONDS_MOST).contains(&time.as_second()));
    let time = in_range.ok_or_else(|| wrong(format!("{name}: use a time such as 2026-01-31T12:00:00Z")))?;
    Ok(i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX))
}

impl AskedMoment {
    /// The time in which the test is looked for: from, and until before; nanoseconds since 1970.
    pub(super) fn within(&self) -> Result<(i64, i64), Refusal> {
        let now = i64::try_from(now_ns()).unwrap_or(i64::MAX);
        match &self.at {
            None => Ok((now.saturating_sub(2 * DAY_NS), now.saturating_add(1))),
            Some(text) => moment("at", text).map(|at| (at, at.saturating_add(1))),
        }
    }
}

impl AskedNext {
    pub(super) fn count(&self) -> Result<usize, Refusal> {
        let count = self.next.unwrap_or(20);
        if (1..=500).contains(&count) { Ok(count) } else { Err(wrong(format!("next={count}: use 1 to 500"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_refused() {
        assert_eq!(moment("until", "2026-01-31T12:00:00Z").ok(), Some(1_769_860_800_000_000_000));
        for text in
            ["", "now", "1969-12-31T23:59:59Z", "2200-01-02T00:00:00Z", "9999-12-31T00:00:00Z", "-9999-01-01T00:00:00Z"]
        {
            assert!(moment("until", text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_out_of_range_are_refused() {
        let asked = |days| AskedSpan { days: Some(days), until: None, metric: None };
        assert!(asked(1).span(1).is_ok() && asked(3660).span(1).is_ok());
        assert!(asked(0).span(1).is_err() && asked(3661).span(1).is_err());
    }
}
