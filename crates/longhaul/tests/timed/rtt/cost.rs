//! What a measurement of weeks costs its host.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_kernel::process::{Process, Signal};

use super::{Answered, PATH, exec};
use crate::common::captures::Folder;
use crate::common::quiet;

/// Probes a second.
const PROBES: f64 = 100.0;

/// What all threads of a process used so far.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    cpu_s: f64,
    /// How often a thread waited for something, and woke up.
    wake_ups: f64,
}

impl Used {
    fn of(process: u32) -> Self {
        let mut used = Self::default();
        for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
            // A thread may have ended.
            let text = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<f64>().ok()).unwrap_or(0.0);
            used.cpu_s += number(text("schedstat").split(' ').next()) / 1e9;
            let status = text("status");
            used.wake_ups += number(status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")));
        }
        used
    }
}

/// The machine is shared: the best of so many seconds counts.
const SECONDS: u32 = 12;

/// Answers wait for each other. Where each stamp of a probe and each answer wakes a thread there are about three wake-ups a probe.
#[test]
fn a_probe_wakes_one_thread_and_a_week_takes_a_hundredth_of_a_cpu() {
    let _machine = quiet();
    let Some(answered) = Answered::on_this_machine("rtt-cost", &PATH.replace("LOSS", "none")) else { return };
    let folder = Folder::new("rtt-cost");
    let mut command =
        exec(&answered.lab, "client", &["rtt", "server", "--json", "-t", "1h", "-o", &folder.file("log")]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // In the first second the kernel may not stamp yet, and each answer is read as it comes.
    sleep(Duration::from_secs(2));
    let mut least = Used { cpu_s: f64::MAX, wake_ups: f64::MAX };
    let good = |least: &Used| (0.5..1.7).contains(&least.wake_ups) && least.cpu_s < 0.01;
    for _ in 0..SECONDS {
        if good(&least) {
            break;
        }
        let (before, began) = (Used::of(running.id()), Instant::now());
        sleep(Duration::from_secs(1));
        let (after, seconds) = (Used::of(running.id()), began.elapsed().as_secs_f64());
        least.cpu_s = least.cpu_s.min((after.cpu_s - before.cpu_s) / seconds);
        least.wake_ups = least.wake_ups.min((after.wake_ups - before.wake_ups) / (PROBES * seconds));
    }
    Process::open(running.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    running.wait().unwrap();
    println!(
        "the least of up to {SECONDS} seconds: {:.2} % of a CPU, {:.2} wake-ups a probe",
        least.cpu_s * 100.0,
        least.wake_ups
    );
    assert!(good(&least), "{least:?}");
}

/// A path that holds answers back and lets 250 come at a time, more than are read in one call.
#[test]
fn answers_that_come_together_are_all_read() {
    let path = "[[forward]]\ndelay = '1ms'\n[[backward]]\ndelay = '1ms'\ncoalesce = { time = '500ms' }\n";
    let Some(answered) = Answered::over("rtt-together", path) else { return };
    let result = answered.rtt(&["-c", "1500", "-i", "2ms"]);
    let of = |name: &str| result["result"][name].as_u64().unwrap();
    assert_eq!((of("sent"), of("received"), of("duplicates")), (1500, 1500, 0), "{result}");
    // The kernel stamped each of them when it came.
    assert_eq!(result["result"]["timestamps"]["client"]["received"], "kernel", "{result}");
    let most = result["result"]["rtt"]["max_ns"].as_f64().unwrap() / 1e6;
    assert!((400.0..700.0).contains(&most), "{most} ms");
}
