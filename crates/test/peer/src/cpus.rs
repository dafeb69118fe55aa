//! Which CPUs the threads of a test may use.

use longhaul_kernel::schedule::{allowed_cpus, pin_to};
use longhaul_session::SessionError;

/// The CPUs that this process may use.
pub(crate) fn allowed() -> Vec<u16> {
    allowed_cpus().unwrap_or_default().into_iter().filter_map(|cpu| u16::try_from(cpu).ok()).collect()
}

/// Checks that this process may run on `cpus`.
///
/// # Errors
/// The first CPU on which it may not.
pub(crate) fn may_use(cpus: &[u16]) -> Result<(), SessionError> {
    if cpus.is_empty() { Ok(()) } else { all_in(cpus, &allowed()) }
}

/// Checks that `cpus` are among those `allowed`.
///
/// # Errors
/// The first that is not.
pub(crate) fn all_in(cpus: &[u16], allowed: &[u16]) -> Result<(), SessionError> {
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let message = format!("CPU {cpu}: this end may use CPUs {allowed:?}");
            Err(SessionError::new("no_such_cpu", message, "choose one of those, or see taskset(1) and cpuset(7)"))
        }
    }
}

/// Pins this thread to `cpus`, if any. That they exist was checked when the test was opened.
pub(crate) fn pin(cpus: &[u16]) {
    if !cpus.is_empty() {
        let cpus: Vec<usize> = cpus.iter().map(|cpu| usize::from(*cpu)).collect();
        let _ = pin_to(&cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        assert_eq!(all_in(&[0, 1], &[0, 1]), Ok(()));
        assert_eq!(all_in(&[0, 7], &[0, 1]).unwrap_err().message, "CPU 7: this end may use CPUs [0, 1]");
    }
}
