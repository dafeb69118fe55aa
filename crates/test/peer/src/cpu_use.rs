//! How busy this machine's CPUs were while data moved, how long its TCP was short of memory, and what a thread used of its CPU.
//!
//! A thread looks every [`LOOK`] and keeps two readings, the first and the last between which packets kept arriving. So the quiet before
//! and after a test does not dilute its load.

use crate::caveats;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::procfs::{CpuTime, cpu_times, tcp_memory_pressure, thread_run_delay};
use longhaul_result::Caveat;
use longhaul_terms::{ChangedCounters, ThreadCpu};
use longhaul_udp::Binding;
use longhaul_units::Nanos;

/// How often to look.
const LOOK: Duration = Duration::from_millis(100);
/// The kernel counts in steps of 10 ms: over a shorter time a share would be off by more than 2 %.
const SHORTEST: Nanos = Nanos::from_millis(500);
/// A CPU with no more idle time than 5 % has none when a burst comes.
const SATURATED: f64 = 0.95;

#[derive(Debug, Clone, Default)]
struct Reading {
    at: Nanos,
    cpus: Vec<CpuTime>,
}

impl Reading {
    fn take() -> Self {
        Self { at: monotonic(), cpus: cpu_times().unwrap_or_default() }
    }
}

/// Watches until it is finished.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<CpuUse>>,
}

impl CpuWatch {
    /// `moved` returns how many packets or bytes arrived or left so far.
    pub(crate) fn start(moved: impl Fn() -> u64 + Send + 'static) -> Self {
        let stop: Arc<AtomicBool> = Arc::default();
        let stopped = Arc::clone(&stop);
        let watch = move || {
            let (mut first, mut last, mut newest) = (None, None, None);
            let mut known = 0;
            // Each look stands for the time since the one before.
            let (mut looked, mut pressed) = (monotonic(), Nanos::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let count = moved();
                if count > known {
                    // Packets arrived after the newest reading so far, so that one lies within the test.
                    last = newest.take();
                    let reading = newest.insert(Reading::take());
                    first.get_or_insert_with(|| reading.clone());
                }
                known = count;
                let now = monotonic();
                if tcp_memory_pressure() {
                    pressed = pressed.saturating_add(now.saturating_sub(looked));
                }
                looked = now;
                sleep(LOOK);
            }
            let cpus = first.zip(last).map(|(first, last)| CpuUse::between(&first, &last)).unwrap_or_default();
            CpuUse { pressed, ..cpus }
        };
        // Without a thread nothing is known of the CPUs.
        Self { stop, thread: Builder::new().name("cpu use".into()).spawn(watch).ok() }
    }

    /// Stops watching and returns what was seen.
    pub(crate) fn finish(mut self) -> CpuUse {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for CpuWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What the calling thread uses of its CPU from here on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadWatch {
    at: Nanos,
    cpu: Nanos,
    run_delay: Option<Nanos>,
}

impl ThreadWatch {
    pub(crate) fn start() -> Self {
        Self { at: monotonic(), cpu: thread_cpu_time(), run_delay: thread_run_delay().ok() }
    }

    /// What it used since. The same thread calls this.
    pub(crate) fn used(&self) -> ThreadCpu {
        let now = Self::start();
        let run_delay = now.run_delay.zip(self.run_delay).map(|(now, then)| now.saturating_sub(then).0);
        ThreadCpu {
            cpu_time_ns: now.cpu.saturating_sub(self.cpu).0,
            run_delay_ns: run_delay,
            elapsed_ns: now.at.saturating_sub(self.at).0,
        }
    }
}

/// What each CPU did in some time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CpuUse {
    span: Nanos,
    cpus: Vec<CpuTime>,
    /// How long TCP was short of memory, from the first look to the last.
    pressed: Nanos,
}

impl CpuUse {
    fn between(before: &Reading, after: &Reading) -> Self {
        let cpus = after.cpus.iter().filter_map(|after| {
            let before = before.cpus.iter().find(|before| before.cpu == after.cpu)?;
            Some(CpuTime {
                cpu: after.cpu,
                busy: after.busy.saturating_sub(before.busy),
                softirq: after.softirq.saturating_sub(before.softirq),
                steal: after.steal.saturating_sub(before.steal),
            })
        });
        Self { span: after.at.saturating_sub(before.at), cpus: cpus.collect(), pressed: Nanos::ZERO }
    }

    /// Adds them to the counters, which have whole numbers only.
    pub(crate) fn add_to(&self, counters: &mut ChangedCounters) {
        let mut add = |name: String, time: Nanos| _ = counters.insert(name, i64::try_from(time.0).unwrap_or(i64::MAX));
        if self.pressed > Nanos::ZERO {
            add("machine: tcp_memory_pressure_ns".into(), self.pressed);
        }
        if self.cpus.is_empty() || self.span == Nanos::ZERO {
            return;
        }
        add("machine: cpu_watched_ns".into(), self.span);
        for cpu in &self.cpus {
            add(format!("machine, CPU {}: busy_ns", cpu.cpu), cpu.busy);
            add(format!("machine, CPU {}: softirq_ns", cpu.cpu), cpu.softirq);
            add(format!("machine, CPU {}: steal_ns", cpu.cpu), cpu.steal);
        }
    }

    /// A caveat where a CPU is saturated that concerns the receiver: one that it is bound to, one that spends half of its time in softirq,
    /// or where all are.
    pub(crate) fn caveat(&self, binding: Option<&Binding>) -> Option<Caveat> {
        if self.span < SHORTEST {
            return None;
        }
        let share = |time: Nanos| time.0 as f64 / self.span.0 as f64;
        let full = |cpu: &&CpuTime| share(cpu.busy) >= SATURATED;
        let all = self.cpus.iter().filter(full).count() == self.cpus.len();
        let bound = |cpu: &CpuTime| {
            binding.is_some_and(|b| b.receiver_cpus.contains(&cpu.cpu) || b.softirq_cpus.contains(&cpu.cpu))
        };
        let concerned = |cpu: &&CpuTime| all || bound(cpu) || share(cpu.softirq) >= 0.5;
        let said: Vec<String> = (self.cpus.iter().filter(full).filter(concerned))
            .map(|cpu| {
                let percent = |time| (share(time) * 100.0).min(100.0);
                format!("CPU {} {:.0} % ({:.0} % softirq)", cpu.cpu, percent(cpu.busy), percent(cpu.softirq))
            })
            .collect();
        (!said.is_empty()).then(|| {
            Caveat::new(
                caveats::RECEIVER_CPU_SATURATED,
                format!("the receiver's machine was busy: {}", said.join(", ")),
                "give receiver and softirq a CPU each, allow batches of packets, or ask for a lower rate",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(busy_ms: [u64; 2], softirq_ms: [u64; 2]) -> CpuUse {
        let cpu = |cpu: usize| CpuTime {
            cpu: cpu as u32,
            busy: Nanos::from_millis(busy_ms[cpu]),
            softirq: Nanos::from_millis(softirq_ms[cpu]),
            steal: Nanos::ZERO,
        };
        CpuUse { span: Nanos::from_secs(1), cpus: vec![cpu(0), cpu(1)], pressed: Nanos::ZERO }
    }

    #[test]
    fn a_full_cpu_counts_where_the_receiver_is() {
        let bound = |cpu| Binding { receiver_cpus: vec![cpu], ..Binding::default() };
        let sender_spins = used([1_000, 300], [0, 0]);
        assert_eq!(sender_spins.caveat(None), None);
        assert_eq!(sender_spins.caveat(Some(&bound(1))), None);
        let caveat = sender_spins.caveat(Some(&bound(0))).unwrap();
        assert!(caveat.message.contains("CPU 0 100 % (0 % softirq)") && !caveat.message.contains("CPU 1"));
        assert!(used([300, 960], [0, 600]).caveat(None).unwrap().message.contains("CPU 1 96 % (60 % softirq)"));
        assert!(used([960, 960], [0, 0]).caveat(None).is_some());
        assert_eq!(used([940, 940], [600, 600]).caveat(None), None);
        assert_eq!(CpuUse { span: Nanos::from_millis(499), ..used([960, 960], [0, 0]) }.caveat(None), None);
    }

    #[test]
    fn a_thread_that_spins_uses_its_cpu_and_one_that_sleeps_does_not() {
        let watch = ThreadWatch::start();
        sleep(Duration::from_millis(50));
        let slept = watch.used();
        assert!(slept.elapsed_ns >= 50_000_000 && slept.cpu_time_ns < 10_000_000, "{slept:?}");
        while watch.used().cpu_time_ns < 60_000_000 {}
        let spun = watch.used();
        // All of the time it slept, ran or waited for a CPU.
        let accounted = 50_000_000 + spun.cpu_time_ns + spun.run_delay_ns.unwrap();
        assert!(accounted.abs_diff(spun.elapsed_ns) < spun.elapsed_ns / 4, "{spun:?}");
    }

    #[test]
    fn the_time_is_that_of_the_packets() {
        let (looked, looks) = std::sync::mpsc::channel();
        // Nothing twice, then a packet each look, then nothing more.
        let counts = std::sync::Mutex::new([0, 0, 1, 2, 3].into_iter());
        let watch = CpuWatch::start(move || {
            looked.send(monotonic()).unwrap();
            counts.lock().unwrap().next().unwrap_or(3)
        });
        let at: Vec<Nanos> = looks.iter().take(8).collect();
        let used = watch.finish();
        // From behind the third look to behind the fourth.
        assert!(used.span >= LOOK.into() && used.span <= at[4] - at[2], "{:?} {at:?}", used.span);
        let mut counters = ChangedCounters::new();
        used.add_to(&mut counters);
        assert!(counters.contains_key("machine: cpu_watched_ns") && counters.contains_key("machine, CPU 0: busy_ns"));
    }
}
