//! Waiting for an event instead of for a time.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// After this, what is waited for does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `done` gives something; `what` says what for.
///
/// # Panics
/// Where it does not come within 60 s.
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        sleep(LOOK);
    }
}

/// Waits until it is `done`; `what` says what for.
///
/// # Panics
/// As [`wait_for`].
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    wait_for(what, || done().then_some(()));
}
