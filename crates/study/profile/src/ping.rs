//! The output of `ping`: of iputils, BusyBox, macOS and the BSDs.

use crate::probes::{Probe, Probes, probes_most};

/// Notes about lines that make no sense; more are only counted.
const NOTES_MAX: usize = 8;
/// Lost probes at most: so many, three days of one a second, and so many for each answer. A number beyond is wrong, not after losses.
const LOST_MAX: u64 = 1 << 18;
const LOST_BY_ANSWER_MAX: u64 = 16;
/// `ping` sends one probe a second where nothing says otherwise.
const DEFAULT_INTERVAL_NS: i64 = 1_000_000_000;
/// IP and ICMP headers, and Ethernet's.
const HEADER_BYTES: u32 = 14 + 20 + 8;
/// The payload of `ping` where its first line does not say.
const PAYLOAD_BYTES: u32 = 56;

/// Why a text is no output of `ping`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// No line has an answer.
    #[error("no line has the form of an answer, such as `64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=9.87 ms`")]
    NoAnswers,
    /// More probes than are read.
    #[error("more than {0} probes")]
    TooMany(usize),
}

/// Reads the output of `ping`. `interval_ns`: between probes; `None`: from `-D` stamps or the summary, else 1 s, which is noted.
///
/// A number printed with one digit behind the point is known to 0.1 ms: [`Probe::resolution_ns`] has that. A text that is cut in the
/// middle gives what its whole lines say.
///
/// # Errors
/// Where no line is an answer, or there are more probes than [`probes_most`] says.
pub fn read_ping(text: &str, interval_ns: Option<u64>) -> Result<Probes, PingError> {
    let mut reader = Reader { most: probes_most(text.len() as u64), ..Reader::default() };
    for (index, line) in text.split_inclusive('\n').enumerate() {
        reader.line(index + 1, line)?;
    }
    reader.finish(interval_ns)
}

#[derive(Default)]
struct Reader {
    /// Probes that are read.
    most: usize,
    /// By unwrapped sequence number less the first one's.
    rows: Vec<Option<Probe>>,
    first: Option<u64>,
    highest: u64,
    transmitted: Option<u64>,
    total_ms: Option<u64>,
    payload_bytes: Option<u32>,
    notes: Vec<String>,
    unread: usize,
    answers: u64,
    stamped: usize,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), PingError> {
        let line = line.trim_end();
        if line.starts_with("PING ") {
            self.payload_bytes = payload(line).or(self.payload_bytes);
        } else if line.contains("packets transmitted") {
            self.transmitted = line.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
            self.total_ms = line.rsplit("time ").next().and_then(|rest| rest.strip_suffix("ms")?.trim().parse().ok());
        } else if line.contains(" bytes from ") {
            match answer(line) {
                Some(answer) => self.answer(number, &answer)?,
                None => self.note(format!("line {number} is not read: it has no sequence number and time")),
            }
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        } else {
            self.unread += 1;
        }
    }

    fn most_lost(&self) -> u64 {
        LOST_MAX + self.answers * LOST_BY_ANSWER_MAX
    }

    fn answer(&mut self, number: usize, answer: &Answer) -> Result<(), PingError> {
        let first = *self.first.get_or_insert(answer.sequence);
        // Sequence numbers have 16 bits on the wire, and most print them so: the nearest to the highest yet is meant.
        let behind = (self.highest as u16).wrapping_sub(answer.sequence as u16);
        let sequence = match answer.sequence {
            wide if wide > u64::from(u16::MAX) => wide,
            _ if behind < 0x8000 => self.highest.saturating_sub(u64::from(behind)),
            _ => self.highest.saturating_add(u64::from(behind.wrapping_neg())),
        };
        let sequence = if self.rows.is_empty() { answer.sequence } else { sequence };
        if sequence < first || sequence - first > self.most_lost() {
            self.note(format!("line {number} is not read: sequence number {} is out of place", answer.sequence));
            return Ok(());
        }
        let index = (sequence - first) as usize;
        if index >= self.most {
            return Err(PingError::TooMany(self.most));
        }
        if index >= self.rows.len() {
            self.rows.resize(index + 1, None);
        }
        let reordered = sequence < self.highest;
        self.highest = self.highest.max(sequence);
        self.answers += 1;
        self.stamped += usize::from(answer.received_ns.is_some());
        match &mut self.rows[index] {
            Some(row) => row.copies = row.copies.saturating_add(1),
            row @ None => {
                *row = Some(Probe {
                    // The stamp of `-D` is taken when the answer is printed.
                    sent_ns: answer.received_ns.map_or(0, |at| at.saturating_sub_unsigned(answer.rtt_ns)),
                    rtt_ns: Some(answer.rtt_ns),
                    resolution_ns: answer.resolution_ns,
                    reordered,
                    ..Probe::default()
                });
            }
        }
        Ok(())
    }

    fn finish(mut self, interval_ns: Option<u64>) -> Result<Probes, PingError> {
        let Some(first) = self.first.filter(|_| !self.rows.is_empty()) else { return Err(PingError::NoAnswers) };
        // iputils counts from 1, the others from 0; what was lost before the first answer counts where it is known to be so little.
        let ahead = if first <= 1024 { first.saturating_sub(1) as usize } else { 0 };
        let known = self.rows.len() + ahead;
        let tail = self.transmitted.map_or(0, |sent| sent.saturating_sub(known as u64).min(self.most_lost())) as usize;
        if known + tail > self.most {
            return Err(PingError::TooMany(self.most));
        }
        if self.transmitted.is_none() {
            self.note("there is no summary: probes lost after the last answer are not counted".into());
        }
        let mut rows = vec![None; ahead];
        rows.append(&mut self.rows);
        rows.resize(known + tail, None);

        let answered = rows.iter().flatten().count();
        let by_stamps = interval_ns.is_none() && self.stamped == answered && answered > 1;
        let interval = match (interval_ns, self.total_ms) {
            (Some(interval), _) => i64::try_from(interval).unwrap_or(DEFAULT_INTERVAL_NS),
            (None, _) if by_stamps => interval_of_stamps(&rows),
            (None, Some(ms)) if rows.len() > 1 => (ms.min(1 << 40) * 1_000_000 / (rows.len() as u64 - 1)) as i64,
            (None, _) => {
                self.note("the time between the probes is unknown: 1 s is taken (see --interval)".into());
                DEFAULT_INTERVAL_NS
            }
        };
        if self.unread > 0 {
            self.notes.push(format!("{} more lines are not read", self.unread));
        }
        let mut at = 0;
        let rows = rows.into_iter().enumerate().map(|(index, row)| {
            let mut row = row.unwrap_or_default();
            if !by_stamps {
                row.sent_ns = interval.saturating_mul(index as i64);
            } else if row.rtt_ns.is_none() || row.sent_ns <= at {
                row.sent_ns = at.saturating_add(interval);
            }
            at = row.sent_ns;
            row
        });
        Ok(Probes {
            rows: rows.collect(),
            frame_bytes: self.payload_bytes.unwrap_or(PAYLOAD_BYTES).saturating_add(HEADER_BYTES),
            notes: self.notes,
            ..Probes::default()
        })
    }
}

/// The median time between neighbours that both were answered.
fn interval_of_stamps(rows: &[Option<Probe>]) -> i64 {
    let mut gaps: Vec<i64> = rows
        .windows(2)
        .filter_map(|pair| Some(pair[1]?.sent_ns.saturating_sub(pair[0]?.sent_ns)))
        .filter(|gap| *gap > 0)
        .collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(DEFAULT_INTERVAL_NS)
}

struct Answer {
    sequence: u64,
    rtt_ns: u64,
    resolution_ns: u32,
    received_ns: Option<i64>,
}

/// `[1700000000.123456] 64 bytes from host: icmp_seq=1 ttl=64 time=9.87 ms`; BusyBox writes `seq=1`.
fn answer(line: &str) -> Option<Answer> {
    let value = |key: &str| {
        let from = line.find(key)? + key.len();
        line[from..].split(|c: char| c.is_ascii_whitespace() || c == ',').next()
    };
    let sequence = value("seq=")?.parse().ok()?;
    let (rtt_ns, resolution_ns) = milliseconds(value("time=").or_else(|| value("time<"))?)?;
    let stamp = line.strip_prefix('[').and_then(|rest| rest.split(']').next());
    Some(Answer { sequence, rtt_ns, resolution_ns, received_ns: stamp.and_then(seconds) })
}

/// `9.87` as nanoseconds, and the step of its last digit.
fn milliseconds(text: &str) -> Option<(u64, u32)> {
    let text = text.trim_end_matches("ms");
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let value: f64 = text.parse().ok()?;
    if !(0.0..1e9).contains(&value) || digits > 6 {
        return None;
    }
    Some(((value * 1e6).round() as u64, 10_u32.pow(6 - digits as u32)))
}

/// `1700000000.123456` as nanoseconds.
fn seconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = format!("{part:0<9}").get(..9)?.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(part)
}

/// `PING host (192.0.2.1) 56(84) bytes of data.`, `PING host (192.0.2.1): 56 data bytes`.
fn payload(line: &str) -> Option<u32> {
    let words = line.split_ascii_whitespace().skip(2);
    let number = |word: &str| word.split('(').next()?.parse().ok().filter(|bytes| *bytes <= 65_507);
    words.filter(|word| !word.starts_with('(')).find_map(number)
}
