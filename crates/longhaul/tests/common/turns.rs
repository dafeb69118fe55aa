//! Which tests of a program use the machine at a time.
//!
//! Most tests wait most of the time, so that a program runs more of them than there are CPUs (`scripts/run-tests.sh`). Those that
//! would disturb each other take turns here: at a time there are tests of one kind alone, and no more of them than it allows. A kind
//! goes on for as long as tests of it come, so that the machine seldom waits for the last one of many.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a test needs of the machine, or does to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of it.
    Alone,
    /// Others that use as little as it does.
    Quiet,
    /// Its paths are slower than this machine.
    SideBySide,
}

impl Kind {
    /// How many tests of it run at a time.
    const fn most(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Quiet => 2,
            Self::SideBySide => 4,
        }
    }
}

/// The tests that use the machine.
struct Machine {
    /// Of this kind are those that run, or were the last ones that ran.
    kind: Kind,
    running: usize,
    /// How many of each kind wait for their turn.
    waiting: [usize; 3],
}

static MACHINE: Mutex<Machine> = Mutex::new(Machine { kind: Kind::Alone, running: 0, waiting: [0; 3] });
static ENDED: Condvar = Condvar::new();

thread_local! {
    /// Whether the test of this thread has a turn.
    static HAS: Cell<bool> = const { Cell::new(false) };
}

impl Machine {
    fn locked() -> MutexGuard<'static, Self> {
        MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a test of `kind` may begin.
    fn lets_in(&self, kind: Kind) -> bool {
        if kind == self.kind {
            self.running < kind.most()
        } else {
            self.running == 0 && self.waiting[self.kind as usize] == 0
        }
    }
}

/// Held by a test for as long as it uses the machine.
#[derive(Debug)]
pub(crate) struct Turn(());

impl Turn {
    /// Waits until a test of `kind` may begin.
    ///
    /// # Panics
    /// Where the test has a turn: it would wait for its own end.
    pub(crate) fn of(kind: Kind) -> Self {
        assert!(!HAS.replace(true), "this test has a turn already");
        let mut machine = Machine::locked();
        machine.waiting[kind as usize] += 1;
        let mut machine =
            ENDED.wait_while(machine, |machine| !machine.lets_in(kind)).unwrap_or_else(PoisonError::into_inner);
        machine.waiting[kind as usize] -= 1;
        machine.kind = kind;
        machine.running += 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HAS.set(false);
        Machine::locked().running -= 1;
        ENDED.notify_all();
    }
}
