//! The kernel's own modules as judges: each congestion control in BPF that Linux has a module of, with Linux's parameters, against
//! that module in a user-mode Linux. The same losses must give the same windows.
//!
//! ```text
//!   host (its kernel, BPF)                        guest (user-mode Linux 6.1, modules)
//!   ┌──────────────────────────────┐              ┌──────────────────────────────┐
//!   │ flow.rs: socket, lh control  │              │ flow.rs: socket, tcp_NAME.ko │
//!   │   │ TUN                      │              │   │ TUN                      │
//!   │ peer.rs: path and receiver   │              │ peer.rs: path and receiver   │
//!   └──────────────┬───────────────┘              └──────────────┬───────────────┘
//!                  └────────── trace.rs: windows, segment by segment ────────────┘
//! ```
//!
//! **One program runs on both sides**: losses, delay, bottleneck and receiver are the same code, the congestion control and the kernel
//! around it are all that differs. It runs in lockstep with the sender through a TUN device, in one thread: an acknowledgement is
//! written, what TCP sends upon it is read, `TCP_INFO` is read. A veth with netem and a second kernel's receiver would add a softirq's order,
//! delayed acknowledgements and (on the host, which has no netem) another emulator to what is compared. What could differ besides is
//! turned off (`flow::PARAMETERS`), super-packets too: TCP fills those by the clock.
//!
//! **Windows are compared by delivered segments, not by time**, after each acknowledgement, and so are the thresholds that
//! losses set. What depends on no clock must be equal: Reno, which both kernels have, shows that TCP itself is, with its recovery (PRR) and
//! its timeouts. Tolerances are for what does, as each test says: guests count jiffies of 10 ms, and both sides' round trips
//! are as noisy as they are scheduled, some 20 to 200 µs and now and then milliseconds. A round trip lasts a little less than whole jiffies
//! of either kernel, which round up.
//!
//! Noise can make a right control look wrong, hardly a wrong one right: a comparison may be tried [`ATTEMPTS`] times.
//!
//! To see the traces: `ORACLE_KEEP=FOLDER cargo test -p longhaul-bpf --test oracle -- --nocapture`.

mod flow;
mod guest;
mod peer;
mod trace;
mod tun;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{env, fs, thread};

use longhaul_bpf::BpfError;
use longhaul_bpf::congestion::{CongestionError, Control};
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::{allowed_cpus, pin_to};
use longhaul_units::Nanos;

use crate::peer::Script;
use crate::trace::{Tolerance, Trace};

/// How often a comparison is tried.
const ATTEMPTS: usize = 3;

/// What each flow goes through.
pub(crate) const SCRIPTS: [Script; 2] = [
    // No queue to speak of; slow start ends with a loss, then come losses of one, of three in a round trip, of one, and an outage that
    // ends with a timeout.
    Script {
        name: "losses",
        round_trip: Nanos::from_micros(38_500),
        service: Nanos::from_micros(100),
        segments_per_ack: 1,
        lost: &[600, 4_000, 4_001, 4_003, 9_000],
        outage_from: 13_000,
        segments: 16_000,
    },
    // A queue from a window of 128 segments on, acknowledgements of two, and more than one and two seconds without a loss, after which
    // H-TCP changes its increase.
    Script {
        name: "queue",
        round_trip: Nanos::from_micros(38_500),
        service: Nanos::from_micros(300),
        segments_per_ack: 2,
        lost: &[600, 5_600, 13_000],
        outage_from: u64::MAX,
        segments: 14_500,
    },
];

/// Comparisons take both CPUs and time: one after another.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether guests can be had, and this program may do what it needs to on the host; says why not.
fn possible() -> bool {
    let missing = if is_root_in_namespace() { guest::missing() } else { Some("run as root".into()) };
    if let Some(why) = &missing {
        println!("skipped: {why}");
    }
    missing.is_none()
}

/// Flows of the host's kernel.
fn host_traces(control: &str, cpu: usize) -> Vec<Trace> {
    let flows = || {
        pin_to(&[cpu]).unwrap();
        let tun = flow::interface();
        SCRIPTS.iter().map(|script| flow::run(&tun, control, script).unwrap()).collect()
    };
    NetNamespace::create().unwrap().enter(flows).unwrap()
}

/// What of the two goes beyond `tolerance`, script by script; prints how far they are apart.
fn differences(control: &str, ours: &[Trace], theirs: &[Trace], tolerance: [Tolerance; 2]) -> Vec<String> {
    let mut differences = Vec::new();
    for (((script, ours), theirs), tolerance) in SCRIPTS.iter().zip(ours).zip(theirs).zip(tolerance) {
        let late =
            [ours.end, theirs.end].map(|end| format!("{} µs ({})", end.late_median_ns / 1000, end.late_most_ns / 1000));
        let said = format!("{control}, {}: late by {} and {}", script.name, late[0], late[1]);
        if let Some(folder) = env::var_os("ORACLE_KEEP") {
            for (side, trace) in [("host", ours), ("guest", theirs)] {
                fs::write(Path::new(&folder).join(format!("{control}-{}-{side}.jsonl", script.name)), trace.to_lines())
                    .unwrap();
            }
        }
        let Some(distance) = ours.distance(theirs, &tolerance) else {
            differences.push(format!("{said}; losses {:?} and {:?}", ours.thresholds(), theirs.thresholds()));
            continue;
        };
        println!("{said}; {distance}");
        if distance.window.max(distance.threshold) > tolerance.share {
            let thresholds = [ours, theirs].map(Trace::thresholds);
            differences.push(format!(
                "{said}; {distance}, tolerance {:.2} %; thresholds {thresholds:?}",
                tolerance.share * 100.0
            ));
        }
    }
    differences
}

/// Flows of both kernels at the same time, each on a CPU of its own.
fn both(own: &str, module: &str) -> [Vec<Trace>; 2] {
    let cpus = allowed_cpus().unwrap();
    thread::scope(|scope| {
        let theirs = scope.spawn(|| guest::traces(module, &SCRIPTS, cpus[cpus.len() - 1]));
        [host_traces(own, cpus[0]), theirs.join().expect("the guest")]
    })
}

/// Compares the host's `own` with the guest's `module`, within the tolerance for each script. Returns the guest's flows.
fn compare(own: &str, module: &str, tolerance: [Tolerance; 2]) -> Vec<Trace> {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let [ours, theirs] = both(own, module);
        let differences = differences(own, &ours, &theirs, tolerance);
        if differences.is_empty() {
            return theirs;
        }
        seen.extend(differences);
    }
    panic!("not what the kernel's module does:\n{}", seen.join("\n"));
}

/// Loads a control with Linux's parameters and those in `changed`; `None` where that cannot be here, and says why.
fn load(algorithm: Algorithm, changed: &[&str]) -> Option<Control> {
    let mut settings = Settings::new(algorithm, Variant::Linux).unwrap();
    settings.rename(&format!("lho_{}", algorithm.name())).unwrap();
    for assignment in changed {
        settings.set(assignment).unwrap();
    }
    match Control::load(&settings) {
        Ok(control) => Some(control),
        Err(
            error @ (CongestionError::NoStructOps
            | CongestionError::Bpf(BpfError::NotBuilt { .. } | BpfError::NoBtf { .. } | BpfError::Denied { .. })),
        ) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Apart by no more than `share` or `window_segments`, whichever is more.
fn within(share: f64, window_segments: u32) -> Tolerance {
    Tolerance { share, window_segments, delivered_segments: 0 }
}

/// Ours against Linux's module.
fn compare_module(algorithm: Algorithm, tolerance: [Tolerance; 2]) {
    if !possible() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(control) = load(algorithm, &[]) else { return };
    compare(control.name(), algorithm.name(), tolerance);
}

/// The control of this experiment: TCP itself, with recovery, timeouts and acknowledgements of two, is equal in both kernels. (CUBIC
/// and BBR, which both have, too, decide by the clock: no two flows of one kernel are equal.)
#[test]
fn reno() {
    if possible() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        compare("reno", "reno", [Tolerance::EQUAL; 2]);
    }
}

#[test]
fn scalable() {
    if !possible() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(control) = load(Algorithm::Scalable, &[]) else { return };
    let theirs = compare(control.name(), "scalable", [Tolerance::EQUAL; 2]);
    drop(control);
    // A wrong increase is seen, even within the widest tolerance here.
    let Some(wrong) = load(Algorithm::Scalable, &["packets_for_one_more=50"]) else { return };
    let ours = host_traces(wrong.name(), allowed_cpus().unwrap()[0]);
    assert_eq!(differences(wrong.name(), &ours, &theirs, [within(0.15, 10); 2]).len(), 2);
}

#[test]
fn highspeed() {
    compare_module(Algorithm::Highspeed, [Tolerance::EQUAL; 2]);
}

/// It looks at its window again when 1/32 s has passed: 31.25 ms here, 3 jiffies, 30 to 40 ms, there.
#[test]
fn bic() {
    compare_module(Algorithm::Bic, [within(0.02, 1); 2]);
}

/// Time since a loss: milliseconds here, jiffies of 10 ms there.
#[test]
fn htcp() {
    compare_module(Algorithm::Htcp, [within(0.02, 1); 2]);
}

/// ρ is the smoothed round trip in eighths of 25 ms: noise puts off a step of it.
#[test]
fn hybla() {
    compare_module(Algorithm::Hybla, [within(0.02, 1); 2]);
}

/// Without a queue there is only noise for α to depend on: it is 10 up to a mean delay of 0.2 ms, which a flow that is once woken
/// late exceeds. With a queue noise is nothing.
#[test]
fn illinois() {
    compare_module(Algorithm::Illinois, [within(0.15, 1), within(0.02, 1)]);
}

/// Its samples take more than 50 ms: 60 ms in a guest's jiffies. In the few that there are before the first loss the rate doubles and
/// doubles, so the first estimate depends on that; it is small, and later ones agree. After a recovery it sets the window at one
/// stroke, and how long that took follows from the window before.
#[test]
fn westwood() {
    let stroke = |tolerance| Tolerance { delivered_segments: 8, ..tolerance };
    compare_module(Algorithm::Westwood, [stroke(within(0.05, 10)), stroke(within(0.03, 1))]);
}

/// The queue in packets is the window times the noise of the least round trip: one packet in 200 is 0.2 ms.
#[test]
fn yeah() {
    compare_module(Algorithm::Yeah, [within(0.05, 1); 2]);
}

/// As YeAH.
#[test]
fn vegas() {
    compare_module(Algorithm::Vegas, [within(0.05, 1); 2]);
}
