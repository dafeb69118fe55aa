//! The kernel's own modules as judges of the congestion controls in BPF.

mod flow;
mod guest;
mod peer;
mod trace;
mod tun;

use std::sync::{Mutex, PoisonError};
use std::thread;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::{allowed_cpus, pin_to};
use longhaul_units::Nanos;

use crate::peer::Script;
use crate::trace::Trace;

/// What flows go through.
pub(crate) const SCRIPTS: [Script; 2] = [
    Script {
        name: "losses",
        round_trip: Nanos::from_micros(38_500),
        service: Nanos::from_micros(100),
        segments_per_ack: 1,
        lost: &[600, 4_000, 4_001, 4_003, 9_000],
        outage_from: 13_000,
        segments: 16_000,
    },
    Script {
        name: "queue",
        round_trip: Nanos::from_micros(38_500),
        service: Nanos::from_micros(300),
        segments_per_ack: 2,
        lost: &[600, 5_600, 10_600],
        outage_from: u64::MAX,
        segments: 13_000,
    },
];

fn host(control: &str, cpu: usize) -> Vec<Trace> {
    let run = || {
        pin_to(&[cpu]).unwrap();
        let tun = flow::interface();
        SCRIPTS.iter().map(|script| flow::run(&tun, control, script).unwrap()).collect()
    };
    NetNamespace::create().unwrap().enter(run).unwrap()
}

static ALONE: Mutex<()> = Mutex::new(());

fn compare(own: &str, module: &str) {
    if !is_root_in_namespace() {
        return println!("skipped: needs root");
    }
    if let Some(why) = guest::missing() {
        return println!("skipped: {why}");
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let started = std::time::Instant::now();
    let cpus = allowed_cpus().unwrap();
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| guest::traces(module, &SCRIPTS, cpus[cpus.len() - 1]));
        (host(own, cpus[0]), theirs.join().unwrap())
    });
    println!("{own}: {:?}", started.elapsed());
    for ((script, ours), theirs) in SCRIPTS.iter().zip(&ours).zip(&theirs) {
        println!("{} {:?}", script.name, ours.distance(theirs));
        println!("   thresholds {:?} {:?}", ours.thresholds(), theirs.thresholds());
        println!(
            "   late host {} {} guest {} {}",
            ours.late_median_ns, ours.late_most_ns, theirs.late_median_ns, theirs.late_most_ns
        );
        if let Ok(folder) = std::env::var("ORACLE_KEEP") {
            std::fs::write(format!("{folder}/{own}-{}-host", script.name), ours.to_lines()).unwrap();
            std::fs::write(format!("{folder}/{own}-{}-guest", script.name), theirs.to_lines()).unwrap();
        }
    }
}

#[test]
fn reno() {
    compare("reno", "reno");
}

#[test]
fn cubic() {
    compare("cubic", "cubic");
}

macro_rules! ours {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            compare(concat!("um_", stringify!($name)), stringify!($name));
        }
    )* };
}

ours!(highspeed, scalable, bic, htcp, hybla, illinois, westwood, yeah, vegas);
