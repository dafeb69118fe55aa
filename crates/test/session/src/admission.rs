//! Decides which of several clients may test now.

use std::collections::VecDeque;

use longhaul_units::Nanos;

/// What a busy server does with clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolicy {
    /// They wait for their turn, at most this many.
    Queue(usize),
    /// They are refused, and asked to try later.
    Refuse,
}

/// The tests that run and wait on a server. Two tests at once disturb each other, so the default is one at a time.
#[derive(Debug)]
pub struct Admission {
    policy: BusyPolicy,
    at_once: usize,
    next: u64,
    /// Each with the time by which it must be over.
    running: Vec<(Ticket, Nanos)>,
    waiting: VecDeque<Ticket>,
}

/// A client's place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// The state of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The test may run now.
    Run,
    /// The client must wait.
    Wait {
        /// Tests that run or wait before this one.
        ahead: u32,
    },
    /// Refused; the client may try again after this time.
    Busy {
        /// Time until the first of the running tests must be over.
        retry_after: Nanos,
    },
}

impl Admission {
    /// Admits `at_once` tests (at least one) at the same time.
    pub fn new(at_once: usize, policy: BusyPolicy) -> Self {
        Self { policy, at_once: at_once.max(1), next: 0, running: Vec::new(), waiting: VecDeque::new() }
    }

    /// A client asks for a test that is over by `ends` at the latest. It keeps its place until [`leave`](Self::leave).
    pub fn ask(&mut self, now: Nanos, ends: Nanos) -> (Ticket, Verdict) {
        let ticket = Ticket(self.next);
        self.next += 1;
        if self.running.len() < self.at_once && self.waiting.is_empty() {
            self.running.push((ticket, ends));
            return (ticket, Verdict::Run);
        }
        if let BusyPolicy::Queue(most) = self.policy
            && self.waiting.len() < most
        {
            self.waiting.push_back(ticket);
            return (ticket, Verdict::Wait { ahead: self.ahead(self.waiting.len() - 1) });
        }
        let first = self.running.iter().map(|(_, ends)| *ends).min().unwrap_or(now);
        // At least a second, so that a refused client does not retry too often.
        (ticket, Verdict::Busy { retry_after: first.saturating_sub(now).max(Nanos::from_secs(1)) })
    }

    /// The new verdict for a waiting client, after another one left.
    pub fn ask_again(&mut self, ticket: Ticket, ends: Nanos) -> Option<Verdict> {
        let place = self.waiting.iter().position(|waiting| *waiting == ticket)?;
        if place == 0 && self.running.len() < self.at_once {
            self.waiting.pop_front();
            self.running.push((ticket, ends));
            return Some(Verdict::Run);
        }
        Some(Verdict::Wait { ahead: self.ahead(place) })
    }

    /// A client has finished or disconnected. Then call [`ask_again`](Self::ask_again) for those who wait.
    pub fn leave(&mut self, ticket: Ticket) {
        self.running.retain(|(running, _)| *running != ticket);
        self.waiting.retain(|waiting| *waiting != ticket);
    }

    /// Tests that run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The waiting clients, in order.
    pub fn waiting(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.waiting.iter().copied()
    }

    fn ahead(&self, place: usize) -> u32 {
        (self.running.len() + place) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_after_the_other() {
        let mut admission = Admission::new(1, BusyPolicy::Queue(2));
        let secs = Nanos::from_secs;
        let (first, verdict) = admission.ask(secs(0), secs(30));
        assert_eq!(verdict, Verdict::Run);
        let (second, verdict) = admission.ask(secs(1), secs(30));
        assert_eq!(verdict, Verdict::Wait { ahead: 1 });
        let (third, verdict) = admission.ask(secs(2), secs(30));
        assert_eq!(verdict, Verdict::Wait { ahead: 2 });
        assert_eq!(admission.ask(secs(10), secs(30)).1, Verdict::Busy { retry_after: secs(20) });
        admission.leave(first);
        assert_eq!(admission.ask_again(third, secs(60)), Some(Verdict::Wait { ahead: 1 }));
        assert_eq!(admission.ask_again(second, secs(60)), Some(Verdict::Run));
        admission.leave(second);
        assert_eq!(admission.ask_again(third, secs(60)), Some(Verdict::Run));
        assert_eq!(admission.ask_again(second, secs(60)), None);
        assert_eq!(Admission::new(0, BusyPolicy::Refuse).ask(secs(0), secs(1)).1, Verdict::Run);
    }
}
