//! A measurement beside a path as curves, for a drawing: their distributions, and both over time.

use crate::delay::sorted;
use crate::probes::Probe;

/// Levels of a distribution, evenly.
const LEVELS: u32 = 200;
/// Levels of its last part, for each power of ten.
const OF_TAIL: u32 = 10;
/// Stretches of time.
const STRETCHES: u64 = 120;
/// Probes that a stretch has at least, usually.
const LEAST_OF_STRETCH: u64 = 20;

/// What is drawn of a measurement and a path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    /// Both distributions, ascending.
    pub levels: Vec<Level>,
    /// How long a stretch is, nanoseconds.
    pub stretch_ns: u64,
    /// The measurement, stretch by stretch.
    pub measured: Vec<Stretch>,
    /// The path's first run, probe by probe at the same times.
    pub path: Vec<Stretch>,
}

/// One level of both distributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Share of the round trips that are longer, from 1 down to one of all measured ones.
    pub longer: f64,
    /// The measured round trip, nanoseconds.
    pub measured_ns: f64,
    /// The path's.
    pub path_ns: f64,
}

/// What probes sent in a stretch of time had.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stretch {
    /// Probes.
    pub sent: u64,
    /// Of which so many were not answered.
    pub lost: u64,
    /// 10 %, 50 % and 90 % quantile of the round trip, nanoseconds; `None` without an answer.
    pub rtt_ns: Option<[f64; 3]>,
}

impl Curves {
    /// Of the measured rows and those of the path's runs.
    pub(crate) fn of(measured: &[Probe], runs: &[Vec<Probe>]) -> Self {
        let (Some(first), Some(last)) = (measured.first(), measured.last()) else { return Self::default() };
        let spanned = last.sent_ns.abs_diff(first.sent_ns).max(1);
        let stretches = (measured.len() as u64 / LEAST_OF_STRETCH).clamp(1, STRETCHES);
        let stretch_ns = spanned / stretches + 1;
        let over_time = |rows: &[Probe]| over_time(rows, first.sent_ns, stretch_ns, stretches as usize);
        Self {
            levels: levels(&ascending(measured.iter()), &ascending(runs.iter().flatten())),
            stretch_ns,
            measured: over_time(measured),
            path: runs.first().map(|rows| over_time(rows)).unwrap_or_default(),
        }
    }
}

/// Round trips, ascending.
fn ascending<'a>(rows: impl Iterator<Item = &'a Probe>) -> Vec<f64> {
    let samples: Vec<_> = rows.filter_map(|row| Some((row.sent_ns, row.rtt_ns? as f64, row.resolution_ns))).collect();
    sorted(&samples)
}

fn levels(measured: &[f64], path: &[f64]) -> Vec<Level> {
    if measured.is_empty() || path.is_empty() {
        return Vec::new();
    }
    let count = measured.len() as f64;
    let even = (0..LEVELS).map(|nth| 1.0 - f64::from(nth) / f64::from(LEVELS));
    let steps = (count.log10() * f64::from(OF_TAIL)) as u32;
    let tail = (1..=steps).map(|step| 10_f64.powf(-f64::from(step) / f64::from(OF_TAIL)));
    let mut shares: Vec<f64> = even.chain(tail).chain([1.0 / count]).filter(|share| *share * count >= 1.0).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    shares.dedup();
    let at =
        |values: &[f64], longer: f64| values[(((1.0 - longer) * values.len() as f64) as usize).min(values.len() - 1)];
    let level = |longer: f64| Level { longer, measured_ns: at(measured, longer), path_ns: at(path, longer) };
    shares.into_iter().map(level).collect()
}

fn over_time(rows: &[Probe], first_ns: i64, stretch_ns: u64, stretches: usize) -> Vec<Stretch> {
    let mut all = vec![Stretch::default(); stretches];
    let number = |row: &Probe| (row.sent_ns.abs_diff(first_ns) / stretch_ns).min(stretches as u64 - 1) as usize;
    for rows in rows.chunk_by(|a, b| number(a) == number(b)) {
        let values = ascending(rows.iter());
        let at = |share: f64| values[((share * values.len() as f64) as usize).min(values.len() - 1)];
        all[number(&rows[0])] = Stretch {
            sent: rows.len() as u64,
            lost: rows.iter().filter(|row| row.rtt_ns.is_none()).count() as u64,
            rtt_ns: (!values.is_empty()).then(|| [0.1, 0.5, 0.9].map(at)),
        };
    }
    all
}
