//! When which pair is tested, so that hosts seldom ask in vain. It makes the mesh efficient, not safe: admission at both ends
//! ([`crate::admission`]) keeps tests apart, whatever the clocks say.
//!
//! A round of a test plan is a list of slots. In a slot no site is in two tests, and shared links are not filled beyond their share. For a full
//! mesh the pairs are taken in the order of the circle method: with an even number of sites each slot has all of them, and n sites need
//! 2 (n - 1) slots for both directions.

mod slots;

pub use slots::Slot;

use longhaul_units::Nanos;

use crate::file::{Mesh, OVERHEAD, TestPlan};
use crate::sample::SiteId;

/// The part of the time that schedules may fill: the rest is for pairs that were refused, or whose site was away.
pub const BUSY_MOST: f64 = 0.85;

/// The rounds of a mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Each test plan that has rounds, in the order of the mesh.
    pub rounds: Vec<Round>,
}

/// A round of a test plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The plan's number in the mesh.
    pub test: usize,
    /// How often it begins.
    pub every: Nanos,
    /// How long a slot takes.
    pub slot: Nanos,
    /// Slots of a round.
    pub slots: usize,
    /// Rounds until all pairs were tested: 1 without a sample.
    pub rounds_for_all: usize,
    /// All pairs, in the order in which they are taken.
    order: Vec<(SiteId, SiteId)>,
    /// Pairs of a round.
    sample: usize,
}

/// Why a mesh has no schedule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The tests need more time than there is.
    #[error(
        "the tests do not fit: {details}; together they fill {:.0} % of the time, {:.0} % are allowed: test less often, shorter, or a sample of the \
         pairs (pairs = {pairs})", busy * 100.0, BUSY_MOST * 100.0
    )]
    DoesNotFit {
        /// The part of the time that they would fill.
        busy: f64,
        /// Each plan with the time that a round takes.
        details: String,
        /// Pairs of the longest plan that would fit.
        pairs: usize,
    },
}

impl Round {
    /// How long a round takes.
    pub fn takes(&self) -> Nanos {
        Nanos(self.slot.0.saturating_mul(self.slots as u64))
    }

    /// Tests of a round.
    pub fn tests(&self) -> usize {
        self.sample
    }

    /// The pairs of the round with this number, slot by slot.
    pub fn slots_of(&self, mesh: &Mesh, number: u64) -> Vec<Slot> {
        let total = self.order.len();
        let first = (number % self.rounds_for_all as u64) as usize * self.sample;
        let chosen: Vec<_> = (first..first + self.sample).map(|index| self.order[index % total]).collect();
        slots::fill(mesh, &mesh.tests[self.test], &chosen)
    }

    /// When a site begins which tests in the round with this number: offset from the begin of the round, and the pair. A site begins the tests
    /// that it sends, unless nobody can connect to the receiver: then the receiver begins them.
    pub fn of_site(&self, mesh: &Mesh, number: u64, site: SiteId) -> Vec<(Nanos, (SiteId, SiteId))> {
        let mut own = Vec::new();
        for (index, slot) in (0u64..).zip(self.slots_of(mesh, number)) {
            let pairs = slot.pairs.into_iter().filter(|pair| initiator(mesh, *pair) == site);
            own.extend(pairs.map(|pair| (Nanos(self.slot.0 * index), pair)));
        }
        own
    }
}

/// The round trips that a site begins, each with its partner: of each pair one site, and for all of its time.
pub fn standing(mesh: &Mesh, test: &TestPlan, site: SiteId) -> Vec<SiteId> {
    let own = test.pairs.iter().filter(|pair| initiator(mesh, **pair) == site);
    own.map(|(from, to)| if *from == site { *to } else { *from }).collect()
}

/// Which site of a pair begins its test: the sender, unless nobody can connect to the receiver.
pub fn initiator(mesh: &Mesh, (from, to): (SiteId, SiteId)) -> SiteId {
    if mesh.of(to).nat { to } else { from }
}

impl Schedule {
    /// The schedule of a mesh.
    ///
    /// # Errors
    /// Where the tests do not fit.
    pub fn make(mesh: &Mesh) -> Result<Self, ScheduleError> {
        let mut rounds = Vec::new();
        for (index, test) in mesh.tests.iter().enumerate() {
            if let (Some(every), true) = (test.every, test.kind.is_throughput()) {
                rounds.push(round(mesh, index, test, every));
            }
        }
        let busy: f64 = rounds.iter().map(|round| round.takes().as_secs_f64() / round.every.as_secs_f64()).sum();
        if busy > BUSY_MOST {
            let detail = |round: &Round| {
                let name = &mesh.tests[round.test].name;
                format!("{name}: {} tests take {} of every {}", round.tests(), shown(round.takes()), shown(round.every))
            };
            let longest = rounds.iter().max_by(|one, other| one.takes().cmp(&other.takes()));
            let pairs = longest.map_or(0, |round| (round.tests() as f64 * BUSY_MOST / busy * 0.99) as usize);
            let details = rounds.iter().map(detail).collect::<Vec<_>>().join("; ");
            return Err(ScheduleError::DoesNotFit { busy, details, pairs });
        }
        Ok(Self { rounds })
    }

    /// Lines that say how long each round takes.
    pub fn in_words(&self, mesh: &Mesh) -> Vec<String> {
        let line = |round: &Round| {
            let test = &mesh.tests[round.test];
            let all = match round.rounds_for_all {
                1 => String::new(),
                rounds => format!(", all {} pairs within {rounds} rounds", round.order.len()),
            };
            format!(
                "{}: {} tests of {} in {} slots take {} of every {}{all}",
                test.name,
                round.tests(),
                test.time,
                round.slots,
                shown(round.takes()),
                shown(round.every)
            )
        };
        self.rounds.iter().map(line).collect()
    }
}

/// Hours or minutes, as one reads a round.
fn shown(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        3600.0.. => format!("{:.1} h", seconds / 3600.0),
        60.0.. => format!("{:.1} min", seconds / 60.0),
        _ => format!("{seconds:.0} s"),
    }
}

fn round(mesh: &Mesh, index: usize, test: &TestPlan, every: Nanos) -> Round {
    let order = slots::circle(&test.pairs, mesh.sites.len());
    let sample = test.sample.unwrap_or(order.len()).min(order.len());
    let slots = slots::fill(mesh, test, &order[..sample]).len();
    Round {
        test: index,
        every,
        slot: Nanos(test.time.0.saturating_add(OVERHEAD.0)),
        slots,
        rounds_for_all: order.len().div_ceil(sample),
        order,
        sample,
    }
}

#[cfg(test)]
mod tests;
