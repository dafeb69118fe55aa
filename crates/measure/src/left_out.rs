//! Drops for which the kernel did not run the program that should tell of them.
//!
//! A program on a tracepoint is left out where it would interrupt itself, and the kernel counts that (`recursion_misses`). There are
//! cases that it does not count. So two counters of the same event are compared on each CPU: a counter of perf, which is never left
//! out, and the program's own count of its runs. What the first has more is what nobody told of.
//!
//! The two are not read at one instant, and drops of any traffic go on meanwhile. Perf's is therefore read before and after the
//! program's: the true difference lies between the two, and repeated readings narrow it, as a single quiet instant makes it exact.
//!
//! What is found is an upper bound. It holds drops of all the machine's IP traffic (but for what full sockets drop, which those count
//! by themselves) and says nothing of which packets: at most so many of the test's own losses have no event. The only error to the other side is an event that is under way between
//! the two counters in the very instant of a reading, one packet on one CPU.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use longhaul_bpf::drops::Drops;
use longhaul_kernel::tracepoint::{TracepointCounter, TracepointError};

/// Readings until the difference is known, or as well as it will be.
const READINGS: usize = 32;

/// Both counters of the drops of the machine.
#[derive(Debug)]
pub(crate) struct LeftOut {
    passed: Arc<TracepointCounter>,
    before: Vec<Ahead>,
}

/// How far perf's counter is ahead of the program's, on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ahead {
    cpu: usize,
    least: i128,
    most: i128,
}

impl Ahead {
    const fn unknown(cpu: usize) -> Self {
        Self { cpu, least: i128::MIN, most: i128::MAX }
    }

    /// Perf had `earlier`, then the program `runs`, then perf `later`.
    fn narrow(&mut self, earlier: u64, runs: u64, later: u64) {
        self.least = self.least.max(i128::from(earlier) - i128::from(runs));
        self.most = self.most.min(i128::from(later) - i128::from(runs));
    }

    fn is_exact(self) -> bool {
        self.least >= self.most
    }

    /// Events by which it got further ahead since `before`, at most.
    fn more_than(self, before: Self) -> u64 {
        u64::try_from(self.most.saturating_sub(before.least)).unwrap_or(0)
    }
}

impl LeftOut {
    /// Begins to count; `drops` must be attached.
    ///
    /// # Errors
    /// Where the kernel or the user's rights do not allow it.
    pub(crate) fn since_now(drops: &Drops) -> io::Result<Self> {
        // One for all tests at once: it takes a descriptor for each CPU, and only how far it went on matters.
        static SHARED: Mutex<Weak<TracepointCounter>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = match shared.upgrade() {
            Some(passed) => passed,
            None => Arc::new(counter(&drops.counted_drops()).map_err(io::Error::other)?),
        };
        *shared = Arc::downgrade(&passed);
        drop(shared);
        Self::beside(drops, passed)
    }

    fn beside(drops: &Drops, passed: Arc<TracepointCounter>) -> io::Result<Self> {
        let before = ahead(&passed, drops)?;
        Ok(Self { passed, before })
    }

    /// Drops of which the program was not told so far, at most.
    ///
    /// # Errors
    /// Where a counter cannot be read.
    pub(crate) fn most(&self, drops: &Drops) -> io::Result<u64> {
        let now = ahead(&self.passed, drops)?;
        Ok(now.iter().zip(&self.before).map(|(now, before)| now.more_than(*before)).fold(0, u64::saturating_add))
    }
}

fn counter(filter: &str) -> Result<TracepointCounter, TracepointError> {
    TracepointCounter::open("skb", "kfree_skb", filter)
}

fn ahead(passed: &TracepointCounter, drops: &Drops) -> io::Result<Vec<Ahead>> {
    let of = |cpu: usize| {
        let mut ahead = Ahead::unknown(cpu);
        for _ in 0..READINGS {
            let earlier = passed.passes(cpu)?.unwrap_or(0);
            let runs = drops.runs()?.get(cpu).copied().unwrap_or(0);
            ahead.narrow(earlier, runs, passed.passes(cpu)?.unwrap_or(0));
            if ahead.is_exact() {
                break;
            }
        }
        Ok(ahead)
    };
    passed.cpus().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use longhaul_bpf::drops::{DropOptions, Flow};
    use longhaul_kernel::capability::is_root_in_namespace;

    use super::*;

    /// Full sockets are the drops that perf can be made to count and the program does not: to it they are as if it were left out.
    #[test]
    fn what_the_program_did_not_count_is_found() {
        if !is_root_in_namespace() {
            return println!("skipped: needs CAP_BPF and CAP_PERFMON (run as root)");
        }
        const PACKETS: u64 = 3_000;
        let drops = match Drops::attach(&[Flow { port: 1, cookie: 1 }], &DropOptions::default()) {
            Ok(drops) => drops,
            Err(error) => return println!("skipped: {error}"),
        };
        let (all, counted) =
            (LeftOut::beside(&drops, Arc::new(counter("").unwrap())).unwrap(), LeftOut::since_now(&drops).unwrap());
        let runs = || drops.runs().unwrap().iter().sum::<u64>();
        let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Fills the buffer (0.2 MB by default), then overflows it.
        for _ in 0..PACKETS {
            sending.send_to(&[0; 1_000], receiving.local_addr().unwrap()).unwrap();
        }
        let full = all.most(&drops).unwrap();
        assert!((PACKETS / 2..PACKETS * 2).contains(&full), "{full} of {PACKETS}");
        // Now what both count: nobody listens. Each makes an ICMP packet that is dropped, too.
        let before = runs();
        drop(receiving);
        let nobody = sending.local_addr().unwrap().port() ^ 1;
        for _ in 0..200 {
            let _ = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0; 10], ("127.0.0.1", nobody)).unwrap();
        }
        assert!(runs() - before >= 200, "{}", runs() - before);
        let left_out = counted.most(&drops).unwrap();
        assert!(left_out < 100, "{left_out} drops that the program counted are taken for ones that it missed");
    }

    #[test]
    fn readings_narrow_the_difference_and_a_quiet_one_makes_it_exact() {
        let mut before = Ahead::unknown(0);
        // Perf is 7 ahead; 3 drops come before the program is read, 5 after.
        before.narrow(107, 103, 115);
        assert_eq!((before.least, before.most), (4, 12));
        before.narrow(120, 114, 121);
        assert_eq!((before.least, before.most, before.is_exact()), (6, 7, false));
        before.narrow(200, 193, 200);
        assert!(before.is_exact());

        let mut after = Ahead::unknown(0);
        after.narrow(1_000, 985, 1_002);
        assert_eq!(after.more_than(before), 10, "of which 2 may have come while it was read");
        after.narrow(2_000, 1_985, 2_000);
        assert_eq!(after.more_than(before), 8);
        assert_eq!(before.more_than(after), 0);
    }
}
