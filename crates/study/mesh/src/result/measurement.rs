//! What tests of other kinds than `udp` measured.

use longhaul_units::is_obeyed;
use serde::{Deserialize, Serialize};

use super::{Wanted, is_head_sound};
use crate::file::is_name;

/// Causes of a diagnosis that are kept.
pub const CAUSES_MOST: usize = 16;
/// Letters of a text that is kept.
pub const TEXT_MOST: usize = 600;
/// Bytes of all texts of a diagnosis.
const DIAGNOSIS_BYTES_MOST: usize = 8192;
const WORD_MOST: usize = 64;
/// A test has no more packets: counts of years of tests can be added up.
pub(super) const COUNT_MOST: i64 = u32::MAX as i64;

/// The result of a test of kind `rtt`, `tcp` or `diagnose`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// 32 hexadecimal digits, random.
    pub id: String,
    /// The test's name in the mesh.
    pub test: String,
    /// The site that sent; of round trips: the site that sent the probes.
    pub sender: String,
    /// The site that received, or answered.
    pub receiver: String,
    /// When it began: nanoseconds since 1970, by the coordinator's clock as the site knows it.
    pub at_ns: i64,
    /// What it found.
    pub measured: Measured,
}

/// What a test found, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Measured {
    /// Round trips.
    Rtt(RoundTrips),
    /// TCP.
    Tcp(TcpFlow),
    /// What limits a path.
    Diagnose(Diagnosis),
    /// A kind that only a newer longhaul knows.
    #[serde(other)]
    Unknown,
}

/// Round trips of probes over a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// From the first probe to the last, nanoseconds.
    pub duration_ns: i64,
    /// Probes sent.
    pub sent: i64,
    /// Probes that were not answered within 3 s.
    pub lost: i64,
    /// Quantiles; `None` without an answer.
    pub quantiles: Option<Quantiles>,
    /// Runs of loss that lasted a second or more.
    pub outages: i64,
    /// The longest of them, nanoseconds.
    pub longest_outage_ns: i64,
    /// Time in which probes said nothing about the path, for example while a host was suspended, nanoseconds. It does not count as loss.
    pub gaps_ns: i64,
}

/// Quantiles of round trips, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quantiles {
    /// The least.
    pub min_ns: i64,
    /// Half are at most this.
    pub p50_ns: i64,
    /// 90 % are at most this.
    pub p90_ns: i64,
    /// 99 % are at most this.
    pub p99_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

/// A TCP flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpFlow {
    /// By the receiver's clock, nanoseconds.
    pub duration_ns: i64,
    /// Payload bytes that the receiver read.
    pub bytes: i64,
    /// Payload bits a second that the receiver read.
    pub goodput_bps: i64,
    /// The rate that the sender was paced to: payload bits a second.
    pub paced_bps: i64,
    /// Retransmitted packets.
    pub retransmits: i64,
    /// Retransmitted payload bytes; `None` if the sender's kernel does not count them.
    pub retransmitted_bytes: Option<i64>,
    /// Least round-trip time, nanoseconds; `None` if the sender's kernel has none.
    pub min_rtt_ns: Option<i64>,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// What limited the flow for the greatest share of its time: `congestion_window`, `receive_window`, `send_buffer` or `application`. A flow at
    /// the rate that it is paced to is limited by `congestion_window`, as pacing is part of it.
    pub limited_by: String,
    /// That share, 0 to 1.
    pub limited_share: f64,
}

/// What `longhaul diagnose` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The alarm that it was started for.
    pub alarm: String,
    /// The rate that was expected of the path, bits a second on the wire (L1).
    pub target_bps: Option<i64>,
    /// What TCP carried, payload bits a second.
    pub goodput_bps: Option<i64>,
    /// What limits it, the lowest limit first; 16 at most.
    pub causes: Vec<Cause>,
    /// Why there is no answer.
    pub failed: Option<String>,
}

/// A limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Its code, such as `loss`: `longhaul docs diagnosis` explains each.
    pub code: String,
    /// Where: a location, or the name of a host's role; empty if it is not known.
    pub place: String,
    /// The rate that it allows at most, payload bits a second; `None` if no test says.
    pub bound_bps: Option<i64>,
    /// What to do, the first advice.
    pub remedy: String,
}

impl Measurement {
    /// Whether it can be a result at all: it comes from another host.
    pub fn is_sound(&self) -> bool {
        let is_measured = match &self.measured {
            Measured::Rtt(trips) => trips.is_sound(),
            Measured::Tcp(flow) => flow.is_sound(),
            Measured::Diagnose(diagnosis) => diagnosis.is_sound(),
            Measured::Unknown => false,
        };
        is_head_sound(&self.id, [&self.test, &self.sender, &self.receiver], self.at_ns) && is_measured
    }
}

impl Wanted {
    /// Whether it can be a question at all: it comes from another host.
    pub fn is_sound(&self) -> bool {
        is_text(&self.alarm, WORD_MOST)
            && [&self.test, &self.sender, &self.receiver].into_iter().all(|name| is_name(name))
    }
}

impl RoundTrips {
    fn is_sound(&self) -> bool {
        let rising = |of: &Quantiles| {
            let all = [0, of.min_ns, of.p50_ns, of.p90_ns, of.p99_ns, of.max_ns];
            all.is_sorted()
        };
        [self.duration_ns, self.longest_outage_ns, self.gaps_ns].into_iter().all(|number| number >= 0)
            && (0..=COUNT_MOST).contains(&self.sent)
            && [self.lost, self.outages].into_iter().all(|count| (0..=self.sent).contains(&count))
            && self.quantiles.as_ref().is_none_or(rising)
    }
}

impl TcpFlow {
    fn is_sound(&self) -> bool {
        let numbers = [self.duration_ns, self.bytes, self.goodput_bps, self.paced_bps];
        let optional = [self.retransmitted_bytes, self.min_rtt_ns];
        numbers.into_iter().chain(optional.into_iter().flatten()).all(|number| number >= 0)
            && (0..=COUNT_MOST).contains(&self.retransmits)
            && is_text(&self.congestion_control, WORD_MOST)
            && is_text(&self.limited_by, WORD_MOST)
            && (0.0..=1.0).contains(&self.limited_share)
    }
}

impl Diagnosis {
    /// Leaves out causes that limit least, until its texts have 8 KiB at most.
    pub fn fit(&mut self) {
        while self.text_bytes() > DIAGNOSIS_BYTES_MOST && self.causes.pop().is_some() {}
    }

    fn text_bytes(&self) -> usize {
        let of_causes = self.causes.iter().map(|cause| cause.code.len() + cause.place.len() + cause.remedy.len());
        of_causes.sum::<usize>() + self.alarm.len() + self.failed.as_ref().map_or(0, String::len)
    }

    fn is_sound(&self) -> bool {
        let cause = |cause: &Cause| {
            is_text(&cause.code, WORD_MOST)
                && is_text(&cause.place, WORD_MOST)
                && is_text(&cause.remedy, TEXT_MOST)
                && cause.bound_bps.is_none_or(|rate| rate >= 0)
        };
        [self.target_bps, self.goodput_bps].into_iter().flatten().all(|rate| rate >= 0)
            && is_text(&self.alarm, WORD_MOST)
            && self.causes.len() <= CAUSES_MOST
            && self.causes.iter().all(cause)
            && self.text_bytes() <= DIAGNOSIS_BYTES_MOST
            && self.failed.as_ref().is_none_or(|failed| is_text(failed, TEXT_MOST))
    }
}

/// A text that is printed on a terminal one day.
fn is_text(text: &str, most: usize) -> bool {
    text.chars().count() <= most && !text.chars().any(is_obeyed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_is_cut_to_its_bytes() {
        let cause = |letter: &str| Cause {
            code: "loss".into(),
            place: "network".into(),
            bound_bps: None,
            remedy: letter.repeat(TEXT_MOST),
        };
        // Characters of four bytes: as many of them as of others are allowed.
        let causes = vec![cause("𝄞"); CAUSES_MOST];
        let mut long = Diagnosis { alarm: "a".into(), target_bps: None, goodput_bps: None, causes, failed: None };
        assert!(!long.is_sound());
        long.fit();
        assert!(long.is_sound() && !long.causes.is_empty() && long.text_bytes() > DIAGNOSIS_BYTES_MOST / 2);
        let short = Diagnosis { causes: vec![cause("a"); 3], ..long.clone() };
        let mut same = short.clone();
        same.fit();
        assert_eq!(same, short);
    }
}
