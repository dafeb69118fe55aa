//! What became of each probe: a window of those that may still be answered, and a row of each that left it.

use std::collections::{BTreeMap, VecDeque};

use crate::exchange::ResponderStamps;
use crate::path_change::{CHANGES_MOST, HopsWatch, PathChange};
use crate::probe_log::{EndStamps, ProbeRow, StampedBy};

/// A stamp of the kernel may be so much later than the program's before it was sent, nanoseconds: a packet may wait in a queue.
const STAMP_LATE_MOST: i64 = 10_000_000_000;
/// Answers are counted in blocks of so many numbers. A responder that answers in reverse would have each answer walk the whole window, of
/// 40,000 probes, while the sending thread waits.
const BLOCK: u64 = 256;

/// An answer as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The number of the probe.
    pub sequence: u64,
    /// When the program sent the probe, as the answer repeats it; `None` where it cannot.
    pub echoed_ns: Option<u64>,
    /// When it arrived, Unix time in nanoseconds.
    pub received_ns: i64,
    /// Who took that time.
    pub received_by: StampedBy,
    /// The responder's stamps; `None` where it does not tell its time.
    pub responder: Option<ResponderStamps>,
    /// How many routers it could still have passed (TTL, hop limit); `None` where that is not known.
    pub hops_left: Option<u8>,
}

/// What an answer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The first to its probe.
    First,
    /// A further one.
    Copy,
    /// Its probe counts as lost already.
    Late,
    /// Its probe was sent before a gap, and is accounted for.
    LeftOut,
    /// Not an answer to what was sent.
    Ignored,
}

/// Sums over the probes of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answers after the time-out.
    pub late: u64,
    /// Datagrams that cannot be answers to what was sent.
    pub ignored: u64,
    /// Who stamped answered probes when they were sent.
    pub sent_by: Stampers,
    /// Who stamped their answers when they arrived.
    pub received_by: Stampers,
    /// Who stamped their arrival at the responder.
    pub responder_by: Stampers,
    /// Answered probes.
    pub answered: u64,
    /// Answered probes whose round trip is below zero, as the clock was stepped: they have none.
    pub impossible: u64,
    /// Packets that this host's socket dropped, as it was full.
    pub dropped: u64,
}

/// Time stamps that were not taken by the program, by who took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stampers {
    /// The kernel.
    pub kernel: u64,
    /// The NIC.
    pub nic: u64,
}

impl Stampers {
    fn count(&mut self, by: StampedBy) {
        match by {
            StampedBy::Program => {}
            StampedBy::Kernel => self.kernel += 1,
            StampedBy::Nic => self.nic += 1,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { kernel: self.kernel + other.kernel, nic: self.nic + other.nic }
    }

    /// How many of `all` lack the best stamp that any has.
    pub(crate) fn lacking(self, all: u64) -> u64 {
        let best = if self.nic > 0 { self.nic } else { self.kernel };
        if best > 0 { all.saturating_sub(best) } else { 0 }
    }

    /// Who took most of `all`.
    fn most(self, all: u64) -> StampedBy {
        match all / 2 {
            half if self.nic > half => StampedBy::Nic,
            half if self.nic + self.kernel > half => StampedBy::Kernel,
            _ => StampedBy::Program,
        }
    }
}

/// Answers since somebody last asked, for live lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recent {
    /// Probes sent.
    pub sent: u64,
    /// First answers.
    pub answered: u64,
    /// Least round trip, nanoseconds; 0 without an answer.
    pub least_ns: i64,
    /// Sum of round trips, nanoseconds.
    pub sum_ns: i64,
    /// Greatest round trip, nanoseconds.
    pub greatest_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    program_ns: i64,
    payload_bytes: u32,
    /// When it left, and who says so, where it is not the program.
    stamp: Option<(i64, StampedBy)>,
    answer: Option<Answer>,
    copies: u32,
    late_by: u32,
    /// The clocks were right when it was answered.
    sound: bool,
}

/// The account of all probes. Times are Unix times in nanoseconds, by this host's clock.
#[derive(Debug)]
pub struct Account {
    timeout_ns: i64,
    /// The number of the first in the window.
    first: u64,
    /// The number of the first that was sent after the last gap.
    gap_before: u64,
    window: VecDeque<Waiting>,
    /// How many first answers came to probes of each block. In the block of `first` those that left the window count, too.
    answered_in: BTreeMap<u64, u32>,
    /// The greatest number that was answered.
    answered_most: Option<u64>,
    counts: Counts,
    recent: Recent,
    hops_back: HopsWatch,
    path_changes: Vec<PathChange>,
}

impl Account {
    /// An account of probes that are lost after `timeout_ns`; the first has the number `first`.
    pub fn new(timeout_ns: u64, first: u64) -> Self {
        Self {
            timeout_ns: i64::try_from(timeout_ns).unwrap_or(i64::MAX),
            first,
            gap_before: first,
            window: VecDeque::new(),
            answered_in: BTreeMap::new(),
            answered_most: None,
            counts: Counts::default(),
            recent: Recent::default(),
            hops_back: HopsWatch::default(),
            path_changes: Vec::new(),
        }
    }

    /// The next probe is about to be sent at `program_ns`, with so many bytes of payload. Returns its number.
    pub fn send(&mut self, program_ns: i64, payload_bytes: u32) -> u64 {
        let sequence = self.next();
        self.window.push_back(Waiting {
            program_ns,
            payload_bytes,
            stamp: None,
            answer: None,
            copies: 0,
            late_by: 0,
            sound: false,
        });
        self.recent.sent += 1;
        sequence
    }

    /// The number of the next probe, which is how many were sent.
    pub fn next(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    /// Probe `sequence` left at `sent_ns`, by a stamp that the kernel or the NIC took. One that cannot be is ignored.
    pub fn stamp(&mut self, sequence: u64, sent_ns: i64, by: StampedBy) {
        if let Some(waiting) = self.at(sequence) {
            let after = sent_ns.saturating_sub(waiting.program_ns);
            // The first is that of the packet, a further one that of a copy.
            let better = waiting.stamp.is_none_or(|(_, before)| before < by);
            if (0..STAMP_LATE_MOST).contains(&after) && better {
                waiting.stamp = Some((sent_ns, by));
            }
        }
    }

    /// When the program sent probe `sequence`, Unix time in nanoseconds; `None` where it is not awaited.
    pub fn program_ns(&mut self, sequence: u64) -> Option<i64> {
        self.at(sequence).map(|waiting| waiting.program_ns)
    }

    fn at(&mut self, sequence: u64) -> Option<&mut Waiting> {
        self.window.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    /// Takes an answer.
    pub fn answer(&mut self, answer: Answer) -> Arrival {
        let arrival = self.take(answer);
        match arrival {
            Arrival::Late => self.counts.late += 1,
            Arrival::Ignored => self.counts.ignored += 1,
            Arrival::First | Arrival::Copy | Arrival::LeftOut => {}
        }
        arrival
    }

    /// A datagram came that is no answer.
    pub fn ignore(&mut self) {
        self.counts.ignored += 1;
    }

    /// The socket has dropped so many packets since it was opened. Another socket begins anew.
    pub fn dropped(&mut self, so_far: u32) {
        self.counts.dropped = self.counts.dropped.max(so_far.into());
    }

    fn take(&mut self, answer: Answer) -> Arrival {
        if answer.sequence < self.gap_before {
            return Arrival::LeftOut;
        }
        if answer.sequence < self.first {
            return Arrival::Late;
        }
        let timeout_ns = self.timeout_ns;
        let Some(waiting) = self.at(answer.sequence) else { return Arrival::Ignored };
        let elapsed = answer.received_ns.saturating_sub(waiting.program_ns);
        let inside = answer.responder.map_or(0, |stamps| stamps.sent_ns.saturating_sub(stamps.received_ns));
        let echoed = answer.echoed_ns.is_none_or(|ns| ns == waiting.program_ns as u64);
        if !echoed || inside < 0 || (elapsed >= 0 && inside > elapsed) {
            return Arrival::Ignored;
        }
        if waiting.answer.is_some() {
            waiting.copies = waiting.copies.saturating_add(1);
            return Arrival::Copy;
        }
        if elapsed > timeout_ns {
            return Arrival::Late;
        }
        waiting.answer = Some(answer);
        let (rtt, sent_ns) = (waiting.rtt().unwrap_or(0), waiting.sent_ns());
        if self.path_changes.len() < CHANGES_MOST {
            let change = answer.hops_left.and_then(|ttl| self.hops_back.answer(ttl, sent_ns));
            self.path_changes.extend(change);
        }
        let recent = &mut self.recent;
        recent.least_ns = if recent.answered == 0 { rtt } else { recent.least_ns.min(rtt) };
        recent.greatest_ns = recent.greatest_ns.max(rtt);
        recent.sum_ns = recent.sum_ns.saturating_add(rtt);
        recent.answered += 1;
        match self.answered_most {
            Some(most) if most > answer.sequence => {
                let late_by = self.answered_after(answer.sequence);
                if let Some(waiting) = self.at(answer.sequence) {
                    waiting.late_by = late_by;
                }
            }
            _ => self.answered_most = Some(answer.sequence),
        }
        *self.answered_in.entry(answer.sequence / BLOCK).or_default() += 1;
        Arrival::First
    }

    /// How many probes after `sequence`, which is in the window, are answered.
    fn answered_after(&self, sequence: u64) -> u32 {
        let block = sequence / BLOCK;
        let from = (sequence - self.first) as usize + 1;
        let to = self.window.len().min(from + (BLOCK - 1 - sequence % BLOCK) as usize);
        let in_block = self.window.range(from..to).filter(|later| later.answer.is_some()).count();
        let beyond = self.answered_in.range(block + 1..).map(|(_, answered)| *answered);
        beyond.fold(in_block as u32, u32::saturating_add)
    }

    /// Hands out the rows of probes whose time is over at `now_ns`, in order. A row stays until then, as a copy may come.
    pub fn retire(&mut self, now_ns: i64, mut row: impl FnMut(ProbeRow)) {
        while let Some(waiting) = self.window.front() {
            let age = now_ns.saturating_sub(waiting.program_ns);
            // A clock that was set back far must not keep rows for ever.
            if age <= self.timeout_ns && age > -self.timeout_ns {
                break;
            }
            self.pop(&mut row);
        }
    }

    /// Hands out the rows of all probes.
    pub fn finish(&mut self, mut row: impl FnMut(ProbeRow)) {
        while !self.window.is_empty() {
            self.pop(&mut row);
        }
    }

    /// Takes the first one out of the window.
    fn leave(&mut self) -> Option<Waiting> {
        let waiting = self.window.pop_front()?;
        self.first += 1;
        if self.first.is_multiple_of(BLOCK) {
            self.answered_in.remove(&(self.first / BLOCK - 1));
        }
        Some(waiting)
    }

    fn pop(&mut self, row: &mut impl FnMut(ProbeRow)) {
        let sequence = self.first;
        let Some(waiting) = self.leave() else { return };
        let rtt_ns = waiting.rtt();
        if let Some(answer) = &waiting.answer {
            let counts = &mut self.counts;
            counts.answered += 1;
            counts.sent_by.count(waiting.stamp.map_or(StampedBy::Program, |(_, by)| by));
            counts.received_by.count(answer.received_by);
            counts.responder_by.count(answer.responder.map_or(StampedBy::Program, |stamps| stamps.received_by));
            counts.impossible += u64::from(rtt_ns.is_none());
        }
        let answer = waiting.answer.filter(|_| rtt_ns.is_some());
        let responder = answer.and_then(|answer| answer.responder);
        let sent_ns = waiting.sent_ns();
        row(ProbeRow {
            sequence,
            payload_bytes: waiting.payload_bytes,
            sent_ns,
            rtt_ns,
            forward_ns: responder.map(|stamps| stamps.received_ns.saturating_sub(sent_ns)),
            backward_ns: answer
                .zip(responder)
                .map(|(answer, stamps)| answer.received_ns.saturating_sub(stamps.sent_ns)),
            copies: waiting.copies,
            late_by: waiting.late_by,
        });
    }

    /// Clocks were right up to now: answers that came so far stay whatever comes.
    pub fn sound(&mut self) {
        self.window
            .iter_mut()
            .rev()
            .filter(|waiting| waiting.answer.is_some())
            .for_each(|waiting| waiting.sound = true);
    }

    /// Hands out the rows of probes that are answered, and leaves out probes on their way and probes answered since [`Self::sound`]: a
    /// gap spoilt their times. Returns how many.
    pub fn leave_out(&mut self, mut row: impl FnMut(ProbeRow)) -> u64 {
        let mut left_out = 0;
        while let Some(waiting) = self.window.front() {
            if waiting.sound {
                self.pop(&mut row);
            } else {
                self.leave();
                left_out += 1;
            }
        }
        self.gap_before = self.first;
        left_out
    }

    /// Whether every probe that was sent is answered.
    pub fn all_answered(&self) -> bool {
        self.window.iter().all(|waiting| waiting.answer.is_some())
    }

    /// Sums so far, of the probes that were handed out.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes of the route back since the last call.
    pub fn take_path_changes(&mut self) -> Vec<PathChange> {
        std::mem::take(&mut self.path_changes)
    }

    /// What came since the last call.
    pub fn take_recent(&mut self) -> Recent {
        std::mem::take(&mut self.recent)
    }
}

impl Waiting {
    fn sent_ns(&self) -> i64 {
        self.stamp.map_or(self.program_ns, |(sent_ns, _)| sent_ns)
    }

    /// The round trip without the time inside the responder; `None` without an answer, and where it would be below zero.
    fn rtt(&self) -> Option<i64> {
        let answer = self.answer?;
        let inside = answer.responder.map_or(0, |stamps| stamps.sent_ns.saturating_sub(stamps.received_ns));
        let rtt = answer.received_ns.saturating_sub(self.sent_ns()).saturating_sub(inside);
        (rtt >= 0).then_some(rtt)
    }
}

impl Counts {
    /// Who stamped most at this host.
    pub fn client(&self) -> EndStamps {
        EndStamps { sent: self.sent_by.most(self.answered), received: self.received_by.most(self.answered) }
    }

    /// Who stamped at the responder.
    pub fn responder(&self) -> EndStamps {
        EndStamps { sent: StampedBy::Program, received: self.responder_by.most(self.answered) }
    }

    /// With the sums of `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            late: self.late + other.late,
            ignored: self.ignored + other.ignored,
            sent_by: self.sent_by.plus(other.sent_by),
            received_by: self.received_by.plus(other.received_by),
            responder_by: self.responder_by.plus(other.responder_by),
            answered: self.answered + other.answered,
            impossible: self.impossible + other.impossible,
            dropped: self.dropped + other.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caveats::{ANSWERS_DROPPED, PROBES_DROPPED};
    use crate::parameters::RttEndReport;
    use crate::result::caveats_of;

    const MS: i64 = 1_000_000;

    /// An account of `probes`, one each 10 ms from 1 s on.
    fn sent(probes: i64) -> Account {
        let mut account = Account::new(3_000_000_000, 0);
        (0..probes).for_each(|at| _ = account.send(at_ms(at), 64));
        account
    }

    fn at_ms(sequence: i64) -> i64 {
        1_000 * MS + sequence * 10 * MS
    }

    /// The answer to a probe after 20 ms, of which 1 ms passed inside a responder whose clock is 5 s ahead.
    fn answer(sequence: u64) -> Answer {
        let sent = at_ms(sequence as i64);
        let received_by = StampedBy::Kernel;
        let there = sent + 5_000 * MS + 9 * MS;
        let responder = ResponderStamps { received_ns: there, sent_ns: there + MS, received_by };
        Answer {
            hops_left: None,
            sequence,
            echoed_ns: Some(sent as u64),
            received_ns: sent + 20 * MS,
            received_by,
            responder: Some(responder),
        }
    }

    fn rows(mut account: Account) -> Vec<ProbeRow> {
        let mut rows = Vec::new();
        account.finish(|row| rows.push(row));
        rows
    }

    #[test]
    fn a_round_trip_leaves_out_the_responder_and_differences_are_raw() {
        let mut account = sent(2);
        account.stamp(0, at_ms(0) + 1_000, StampedBy::Kernel);
        assert_eq!(account.answer(answer(0)), Arrival::First);
        assert!(!account.all_answered());
        let row = rows(account)[0];
        assert_eq!((row.sent_ns, row.rtt_ns), (at_ms(0) + 1_000, Some(19 * MS - 1_000)));
        assert_eq!((row.forward_ns, row.backward_ns), (Some(5_009 * MS - 1_000), Some(20 * MS - 5_010 * MS)));
    }

    #[test]
    fn a_stamp_that_comes_after_the_answer_counts_and_one_that_cannot_be_does_not() {
        let mut account = sent(2);
        account.answer(answer(0));
        account.answer(answer(1));
        account.stamp(0, at_ms(0) + 7_000, StampedBy::Kernel);
        account.stamp(0, at_ms(0) + 9_000, StampedBy::Kernel);
        account.stamp(1, at_ms(1) - 1, StampedBy::Kernel);
        account.stamp(99, at_ms(1), StampedBy::Kernel);
        let rows = rows(account);
        assert_eq!((rows[0].sent_ns, rows[1].sent_ns), (at_ms(0) + 7_000, at_ms(1)));
    }

    #[test]
    fn a_nics_stamp_counts_before_the_kernels_and_most_decide_who_stamped() {
        let (mut account, by_nic) = (sent(3), StampedBy::Nic);
        for sequence in 0..3 {
            account.stamp(sequence, at_ms(sequence as i64) + 3_000, StampedBy::Kernel);
            let responder = answer(sequence).responder.map(|stamps| ResponderStamps { received_by: by_nic, ..stamps });
            account.answer(Answer { responder, ..answer(sequence) });
        }
        assert_eq!(account.program_ns(2), Some(at_ms(2)));
        for sequence in 1..3 {
            account.stamp(sequence, at_ms(sequence as i64) + 5_000, by_nic);
            account.stamp(sequence, at_ms(sequence as i64) + 4_000, StampedBy::Kernel);
        }
        let mut sent_ns = Vec::new();
        account.finish(|row| sent_ns.push(row.sent_ns));
        assert_eq!(sent_ns, [at_ms(0) + 3_000, at_ms(1) + 5_000, at_ms(2) + 5_000]);
        let (client, responder) = (account.counts().client(), account.counts().responder());
        assert_eq!((client.sent, client.received, responder.received), (by_nic, StampedBy::Kernel, by_nic));
        assert_eq!(Stampers { kernel: 2, nic: 1 }.most(4), StampedBy::Kernel);
        assert_eq!(Stampers { kernel: 1, nic: 1 }.most(4), StampedBy::Program);
    }

    #[test]
    fn losses_duplicates_and_order() {
        let mut account = sent(6);
        // 0, 3, 1 (late by one), 5, 4 (late by one), 3 again twice; 2 is lost.
        for sequence in [0, 3, 1, 5, 4, 3, 3] {
            account.answer(answer(sequence));
        }
        let rows = rows(account);
        assert_eq!(
            rows.iter().map(|row| row.rtt_ns.is_some()).collect::<Vec<_>>(),
            [true, true, false, true, true, true]
        );
        assert_eq!(rows.iter().map(|row| row.copies).collect::<Vec<_>>(), [0, 0, 0, 2, 0, 0]);
        assert_eq!(rows.iter().map(|row| row.late_by).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0]);
        assert_eq!(rows.iter().map(|row| row.sequence).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
    }

    /// The count by blocks against one that looks at each probe, also where the window does not begin with a block.
    #[test]
    fn an_answer_is_late_by_those_that_overtook_it() {
        let (probes, first) = (3 * BLOCK + 50, 100);
        let mut account = Account::new(3_000_000_000, first);
        (first..first + probes).for_each(|at| _ = account.send(at_ms(at as i64), 64));
        // Every seventh is lost; the others come in an order of no pattern, and from a third of them on the first 300 have left the window.
        let mut order: Vec<u64> = (first..first + probes).filter(|number| number % 7 != 0).collect();
        order.sort_by_key(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let third = order.len() / 3;
        let (mut rows, mut answered) = (Vec::new(), Vec::<u64>::new());
        let mut expected = BTreeMap::new();
        for (at, number) in order.into_iter().enumerate() {
            if at == third {
                account.retire(at_ms(first as i64 + 299) + 3_001 * MS, |row| rows.push(row));
                assert_eq!(rows.len(), 300);
            }
            let is_awaited = at < third || number >= first + 300;
            assert_eq!(account.answer(answer(number)) == Arrival::First, is_awaited, "{number}");
            if is_awaited {
                expected.insert(number, answered.iter().filter(|other| **other > number).count() as u32);
                answered.push(number);
            }
        }
        account.finish(|row| rows.push(row));
        assert_eq!(rows.len() as u64, probes);
        for row in rows {
            assert_eq!(row.late_by, expected.get(&row.sequence).copied().unwrap_or(0), "{}", row.sequence);
        }
    }

    #[test]
    fn what_a_gap_spoils_has_no_row_and_is_not_lost() {
        let mut account = sent(4);
        assert_eq!(account.answer(answer(0)), Arrival::First);
        account.sound();
        // Answered after the clocks were right for the last time; 2 and 3 are on their way.
        assert_eq!(account.answer(answer(1)), Arrival::First);
        let mut kept = Vec::new();
        assert_eq!(account.leave_out(|row| kept.push(row.sequence)), 3);
        assert_eq!((account.answer(answer(2)), account.answer(answer(0))), (Arrival::LeftOut, Arrival::LeftOut));
        assert!(account.all_answered());
        assert_eq!(account.send(at_ms(4), 64), 4);
        assert_eq!(account.counts().late, 0);
        account.finish(|row| kept.push(row.sequence));
        assert_eq!(kept, [0, 4]);
    }

    #[test]
    fn what_a_full_socket_dropped_is_told() {
        let mut account = sent(1);
        // Another socket began anew.
        [0, 3, 2].into_iter().for_each(|so_far| account.dropped(so_far));
        let two_sessions = account.counts().plus(&account.counts());
        let remote = RttEndReport { dropped: 7, ..RttEndReport::default() };
        let caveats = caveats_of(&two_sessions, 0, Some(&remote));
        for (code, said) in [(ANSWERS_DROPPED, "6 packets"), (PROBES_DROPPED, "7 packets")] {
            assert!(caveats.iter().any(|caveat| caveat.is(code) && caveat.message.contains(said)), "{caveats:?}");
        }
    }

    #[test]
    fn numbers_go_on_from_those_before() {
        let mut account = Account::new(3_000_000_000, 700);
        assert_eq!((account.send(at_ms(0), 64), account.next()), (700, 701));
        assert_eq!(account.answer(Answer { echoed_ns: None, responder: None, ..answer(699) }), Arrival::LeftOut);
    }

    #[test]
    fn hostile_answers_are_ignored() {
        let mut account = sent(3);
        let good = answer(1);
        let stamps = good.responder.unwrap();
        let wrong = [
            // Before it was sent, and a number that was never sent.
            Answer { sequence: 3, ..good },
            Answer { sequence: u64::MAX, ..good },
            // Of another probe, or guessed.
            Answer { echoed_ns: Some(0), ..good },
            // Sent before it arrived, and longer inside than away.
            Answer { responder: Some(ResponderStamps { sent_ns: stamps.received_ns - 1, ..stamps }), ..good },
            Answer { responder: Some(ResponderStamps { sent_ns: i64::MAX, ..stamps }), ..good },
            Answer { responder: Some(ResponderStamps { received_ns: i64::MIN, ..stamps }), ..good },
        ];
        assert!(wrong.iter().all(|wrong| account.answer(*wrong) == Arrival::Ignored));
        assert_eq!(account.answer(Answer { received_ns: at_ms(1) + 3_001 * MS, ..good }), Arrival::Late);
        assert_eq!(account.answer(good), Arrival::First);
        let mut retired = Vec::new();
        account.retire(at_ms(0) + 3_000 * MS, |row| retired.push(row.sequence));
        assert!(retired.is_empty());
        account.retire(at_ms(1) + 3_000 * MS, |row| retired.push(row.sequence));
        assert_eq!((retired, account.answer(answer(0))), (vec![0], Arrival::Late));
        assert_eq!((account.counts().ignored, account.counts().late), (6, 2));
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_round_trip_and_keeps_nothing() {
        let mut account = sent(2);
        account.answer(Answer { received_ns: 0, responder: None, ..answer(0) });
        let mut retired = Vec::new();
        account.retire(-10_000 * MS, |row| retired.push(row.rtt_ns));
        assert_eq!((retired, account.counts().impossible), (vec![None, None], 1));
    }
}
