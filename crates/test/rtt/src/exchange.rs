//! The datagrams of a measurement: a question, and an answer of the same length.
//!
//! ```text
//!  0                        18              26              34        35
//! ┌────────────────────────┬───────────────┬───────────────┬─────────┬─ ─ ─
//! │ probe header           │ received (64) │   sent (64)   │ stamped │ fill
//! └────────────────────────┴───────────────┴───────────────┴─────────┴─ ─ ─
//! ```
//!
//! The header's `sent_ns` is the questioner's clock, which the answer repeats: whoever does not see the question cannot make an answer that
//! counts. `received` and `sent` are zero in a question; in an answer they are the responder's Unix time in nanoseconds. `stamped` is 1 where
//! the kernel took `received`, 2 where its NIC did, else 0. The responder takes `sent` in the program: the kernel's stamp of a packet is known when it has left.

use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};

use crate::probe_log::StampedBy;

/// Bytes up to the fill.
pub(crate) const LEAST_BYTES: usize = HEADER_LEN + 17;
/// Answers that a responder sends at once: after an outage all probes that waited in a queue arrive together.
const BURST: u64 = 4096;
/// The longest time after a question in which its answer may count.
pub(crate) const TIMEOUT_MOST: Nanos = Nanos::from_secs(4);
/// Answers at once of a server with a rate cap, at least: jitter, and two clocks that differ, bring probes close together.
const BURST_LEAST: u64 = 16;
/// How much more often than asked for a responder answers: probes of a Poisson process come in clumps.
const RATE_FACTOR: u64 = 2;

/// Writes question `sequence` into `payload`, sent at `sent_ns`. `None` where it is too short.
pub fn question(payload: &mut [u8], cookie: Cookie, sequence: u64, sent_ns: u64) -> Option<()> {
    payload.get_mut(HEADER_LEN..LEAST_BYTES)?.fill(0);
    Probe { cookie: cookie.of(false, 0), sequence, sent_ns }.emit(payload)
}

/// The responder's time stamps, Unix time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderStamps {
    /// When the question arrived.
    pub received_ns: i64,
    /// When the answer was sent.
    pub sent_ns: i64,
    /// Who took `received_ns`.
    pub received_by: StampedBy,
}

/// An answer as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// The question's number.
    pub sequence: u64,
    /// The question's `sent_ns`.
    pub echoed_ns: u64,
    /// The responder's stamps.
    pub stamps: ResponderStamps,
}

/// Reads an answer to a probe whose payload has the length that `length_of` its number says. `None` where it is none.
pub fn reply(payload: &[u8], cookie: Cookie, length_of: impl Fn(u64) -> u32) -> Option<Answered> {
    let probe = Probe::parse(payload)?;
    if payload.len() != length_of(probe.sequence) as usize
        || probe.cookie != cookie.of(true, 0)
        || probe.sequence >= FIRST_RESERVED
    {
        return None;
    }
    let number = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(i64::from_be_bytes);
    let stamps = ResponderStamps {
        received_ns: number(HEADER_LEN)?,
        sent_ns: number(HEADER_LEN + 8)?,
        received_by: match payload.get(HEADER_LEN + 16)? {
            1 => StampedBy::Kernel,
            2 => StampedBy::Nic,
            _ => StampedBy::Program,
        },
    };
    Some(Answered { sequence: probe.sequence, echoed_ns: probe.sent_ns, stamps })
}

/// Who answers: decides which datagrams, and makes the answers.
#[derive(Debug)]
pub struct Responder {
    cookie: Cookie,
    lengths: Vec<u32>,
    /// Time for each answer.
    each: Nanos,
    /// Answers that may be sent at `since`.
    tokens: u64,
    /// Most of them.
    burst: u64,
    since: Option<Nanos>,
    limited: u64,
}

impl Responder {
    /// Answers probes of these `lengths` in the session `cookie`, that come every `interval_ns` in the mean.
    pub fn new(cookie: Cookie, lengths: Vec<u32>, interval_ns: u64) -> Self {
        let each = Nanos((interval_ns / RATE_FACTOR).max(1));
        Self { cookie, lengths, each, tokens: BURST, burst: BURST, since: None, limited: 0 }
    }

    /// Answers fewer probes at once, as a server whose cap is `rate` of payload (`None`: no cap). What was agreed is within the cap; in the mean
    /// twice that is answered at most.
    pub fn capped(self, rate: Option<BitRate>) -> Self {
        let Some(rate) = rate else { return self };
        let longest = self.lengths.iter().copied().max().unwrap_or_default();
        let least = Nanos(u64::from(longest) * 8_000_000_000 / rate.0.max(1));
        // A path, or a host that stood still, may hold probes so long that their answers just count.
        let burst = (TIMEOUT_MOST.0 / least.0.max(1)).clamp(BURST_LEAST, BURST);
        Self { tokens: burst, burst, ..self }
    }

    /// Whether `payload` is a question that may be answered now (a clock that does not step). What comes too often is not.
    pub fn may_answer(&mut self, now: Nanos, payload: &[u8]) -> bool {
        let Some(probe) = Probe::parse(payload) else { return false };
        let fits = self.lengths.iter().any(|length| *length as usize == payload.len()) && payload.len() >= LEAST_BYTES;
        if !fits || probe.cookie != self.cookie.of(false, 0) || probe.sequence >= FIRST_RESERVED {
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let earned = now.saturating_sub(since).0 / self.each.0;
        self.tokens = self.tokens.saturating_add(earned).min(self.burst);
        self.since = Some(since.saturating_add(Nanos(earned.saturating_mul(self.each.0))));
        let left = self.tokens.checked_sub(1);
        match left {
            Some(left) => self.tokens = left,
            None => self.limited += 1,
        }
        left.is_some()
    }

    /// Makes the question in `payload`, which [`Self::may_answer`] took, its own answer.
    pub fn answer(&self, payload: &mut [u8], stamps: ResponderStamps) {
        let Some(probe) = Probe::parse(payload) else { return };
        if payload.len() < LEAST_BYTES {
            return;
        }
        let _ = Probe { cookie: self.cookie.of(true, 0), ..probe }.emit(payload);
        payload[HEADER_LEN..][..8].copy_from_slice(&stamps.received_ns.to_be_bytes());
        payload[HEADER_LEN + 8..][..8].copy_from_slice(&stamps.sent_ns.to_be_bytes());
        payload[HEADER_LEN + 16] = match stamps.received_by {
            StampedBy::Program => 0,
            StampedBy::Kernel => 1,
            StampedBy::Nic => 2,
        };
    }

    /// Questions that were not answered to keep to the rate.
    pub fn limited(&self) -> u64 {
        self.limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_its_question_and_others_are_none() {
        let cookie = Cookie::new(0xabcd_ef00, false, 0);
        let asked = |_| 64;
        let mut responder = Responder::new(cookie, vec![64], 10_000_000);
        let mut payload = [0; 64];
        question(&mut payload, cookie, 7, 99).unwrap();
        assert_eq!(reply(&payload, cookie, asked), None, "a question is no answer");
        assert!(responder.may_answer(Nanos(5), &payload));
        for wrong in [&payload[..63], &payload[..17], &[], &[0; 64]] {
            assert!(!responder.may_answer(Nanos(5), wrong));
        }
        for received_by in [StampedBy::Program, StampedBy::Nic, StampedBy::Kernel] {
            let (mut payload, stamps) = (payload, ResponderStamps { received_ns: -5, sent_ns: 8, received_by });
            responder.answer(&mut payload, stamps);
            assert_eq!(reply(&payload, cookie, asked), Some(Answered { sequence: 7, echoed_ns: 99, stamps }));
        }
        responder.answer(&mut payload, ResponderStamps { received_ns: -5, sent_ns: 8, received_by: StampedBy::Kernel });
        assert_eq!(reply(&payload[..63], cookie, asked), None);
        assert_eq!(reply(&payload, Cookie::new(1 << 8, false, 0), asked), None);
        assert!(!responder.may_answer(Nanos(5), &payload), "an answer is not answered");
    }

    #[test]
    fn what_has_another_size_is_not_answered() {
        let cookie = Cookie::new(1 << 8, false, 0);
        let mut responder = Responder::new(cookie, vec![64, 1000], 10_000_000);
        for (length, fits) in [(64, true), (1000, true), (65, false), (999, false), (1001, false)] {
            let mut payload = vec![0; length];
            question(&mut payload, cookie, 7, 0).unwrap();
            assert_eq!(responder.may_answer(Nanos(5), &payload), fits, "{length} bytes");
        }
    }

    #[test]
    fn a_flood_is_answered_at_twice_the_rate_agreed() {
        let cookie = Cookie::new(1 << 8, false, 0);
        let mut responder = Responder::new(cookie, vec![64], 10_000_000);
        let mut payload = [0; 64];
        question(&mut payload, cookie, 0, 0).unwrap();
        // A hundred thousand in a second, of which 200 and the burst are answered.
        let answered = (0..100_000).filter(|at| responder.may_answer(Nanos(at * 10_000), &payload)).count() as u64;
        assert!((BURST..=BURST + 200).contains(&answered), "{answered}");
        assert_eq!(answered + responder.limited(), 100_000);
        assert!(responder.may_answer(Nanos::from_secs(3), &payload));
    }

    #[test]
    fn a_flood_is_answered_at_twice_the_cap_at_most() {
        let cookie = Cookie::new(1 << 8, false, 0);
        let mut payload = [0; 1000];
        question(&mut payload, cookie, 0, 0).unwrap();
        // 800 kbit/s are a hundred probes of 1000 bytes in a second, as agreed: two hundred answers, and four hundred at once.
        let mut responder = Responder::new(cookie, vec![64, 1000], 10_000_000).capped(Some(BitRate(800_000)));
        let answered = (0..100_000).filter(|at| responder.may_answer(Nanos(at * 10_000), &payload)).count();
        assert!((590..=600).contains(&answered), "{answered}");
    }

    #[test]
    fn probes_at_the_cap_are_all_answered_whatever_their_jitter() {
        let cookie = Cookie::new(1 << 8, false, 0);
        let mut payload = [0; 64];
        question(&mut payload, cookie, 0, 0).unwrap();
        let mut responder = Responder::new(cookie, vec![64], 100_000_000).capped(Some(BitRate(5_120)));
        // Every tenth of a second; each third comes 80 ms late, after an hour the clocks differ by 0.36 s.
        for at in 0..36_000 {
            let late = if at % 3 == 0 { 80_000_000 } else { 0 };
            assert!(responder.may_answer(Nanos(1_000_000_000 + at * 99_990_000 + late), &payload), "probe {at}");
        }
        let mut slow = Responder::new(cookie, vec![64], 2_000_000_000).capped(Some(BitRate(256)));
        assert!((0..BURST_LEAST).all(|_| slow.may_answer(Nanos(1), &payload)));
        // The path held those of four seconds, which come together.
        let late = Nanos(1_000_000_000 + 36_040 * 99_990_000);
        assert!((0..40).all(|_| responder.may_answer(late, &payload)));
    }
}
