//! When answers are read. The kernel stamps packets when they come and go, so they may wait in the socket: a thread that wakes up for each
//! stamp and each answer costs as much CPU as sending the probes.

use longhaul_kernel::wait::sleep_until;
use longhaul_rtt::RttParameters;
use longhaul_units::Nanos;

/// Stamps that are asked for begin some milliseconds later: the kernel patches its code first, and until then stamps a packet when it is read
/// (`net_enable_timestamp`, `__sock_recv_timestamp`).
const AT_ONCE_FIRST: Nanos = Nanos::from_secs(1);
/// Probes whose answers are read together, at most.
const TOGETHER_MOST: u64 = 16;
/// The same by size, as the socket's buffer holds each probe's copy and its answer.
const TOGETHER_BYTES: u64 = 32 << 10;
/// What a packet takes beside its payload.
const OVERHEAD_BYTES: u64 = 1 << 10;
/// The socket's buffer: a path that was interrupted lets all answers of the time-out come at once. A user without root gets less.
pub(super) const ANSWERS_BYTES: usize = 2 << 20;

/// When to read next.
#[derive(Debug)]
pub(super) struct Reading {
    /// How long answers may wait; `None`: they are read at once.
    wait: Option<Nanos>,
    at_once_until: Nanos,
}

impl Reading {
    /// Of probes that begin at `now`. `stamped`: the kernel stamps what comes.
    pub(super) fn new(asked: &RttParameters, stamped: bool, now: Nanos) -> Self {
        let together = TOGETHER_BYTES / (u64::from(asked.payload_bytes) + OVERHEAD_BYTES);
        let together = together.min(TOGETHER_MOST);
        let wait = (stamped && together > 1).then(|| Nanos(asked.interval_ns.saturating_mul(together)));
        Self { wait, at_once_until: now.saturating_add(AT_ONCE_FIRST) }
    }

    /// Lets answers come, not beyond `deadline`. Returns at once where each is read as it comes.
    pub(super) fn let_come(&self, now: Nanos, deadline: Nanos) {
        if let Some(until) = self.until(now, deadline) {
            sleep_until(until);
        }
    }

    fn until(&self, now: Nanos, deadline: Nanos) -> Option<Nanos> {
        let wait = self.wait.filter(|_| now >= self.at_once_until)?;
        Some(now.saturating_add(wait).min(deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_where_the_kernel_stamps_them_and_few_take_little_room() {
        let ms = Nanos::from_millis;
        let until = |payload_bytes, interval_ms, stamped, now| {
            let asked = RttParameters { payload_bytes, interval_ns: ms(interval_ms).0, ..RttParameters::default() };
            Reading::new(&asked, stamped, ms(500)).until(now, now + ms(100))
        };
        let now = ms(1_500);
        assert_eq!(until(64, 1, true, now), Some(now + ms(16)));
        assert_eq!(until(64, 10, true, now), Some(now + ms(100)));
        assert_eq!(until(8_972, 1, true, now), Some(now + ms(3)));
        // Large ones fill the buffer, the program stamps them itself, or the kernel may not do so yet.
        assert_eq!(
            (until(65_507, 1, true, now), until(64, 1, false, now), until(64, 1, true, ms(1_499))),
            (None, None, None)
        );
    }
}
