//! A profile as Linux's netem has it: tables of delay, and the `tc` commands that load them.
//!
//! A table (`.dist`) is signed 16-bit integers, at most 16,384; netem draws one of them for each packet and adds `jitter × integer / 8192` to
//! the delay (`net/sched/sch_netem.c`, `tabledist`). So a table reaches 4 jitters to each side. Where a delay lies farther out than 4 standard
//! deviations, a larger jitter is written, in whose units all of it has room; the steps get as much coarser.
//!
//! Format: `tc-netem(8)`, and iproute2's `tc/q_netem.c` (`get_distribution`), which looks for tables in `$TC_LIB_DIR`.

use std::fmt::Write;

use longhaul_path::law::{DIST_SCALE, Law};
use longhaul_path::spec::{DelaySteps, HopSpec, JitterSpec, LossSpec, Order, QueueLimit};
use longhaul_units::{BitRate, Nanos};

use crate::path_file::Profile;

/// What the integers reach to each side.
const REACH: f64 = i16::MAX as f64;
/// The longest jitter that the kernel draws with: it is a signed number of 32 bits.
const JITTER_MOST_NS: f64 = i32::MAX as f64;
/// The longest table that `tc` reads.
const ENTRIES_MOST: usize = 16_384;
/// L1 counts preamble, FCS and gap, netem what Linux hands the interface.
const L1_BYTES: u64 = 24;
/// The frame that a queue of bytes is counted in, bytes on the wire.
const FULL_FRAME_BYTES: u64 = 1_538;
/// netem also counts what is under way. Without a rate nothing shall be lost for that.
const UNLIMITED_PACKETS: u64 = 1_000_000;
/// A rate that delays nothing: with any rate netem keeps packets in order.
const NO_RATE: BitRate = BitRate(1_000_000_000_000);

/// A profile for netem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Netem {
    /// The name of each table's file without `.dist`, and its text.
    pub tables: Vec<(&'static str, String)>,
    /// A script that loads them: its arguments are the interface towards the server and the one towards the client.
    pub script: String,
    /// What netem cannot express, each a sentence without its end.
    pub not_expressed: Vec<String>,
}

impl Netem {
    /// Of a profile.
    pub fn of(profile: &Profile) -> Self {
        let mut netem = Self { tables: Vec::new(), script: String::new(), not_expressed: Vec::new() };
        netem.not_expressed.push(
            "both ways at one interface: netem delays what an interface sends, so the script takes one for each".into(),
        );
        let path = &profile.path;
        let ways = [("forward", "$1", &path.forward), ("backward", "$2", &path.backward)];
        let commands: Vec<String> = ways
            .into_iter()
            .flat_map(|(name, interface, hops)| hops.iter().map(move |hop| (name, interface, hop)))
            .map(|(name, interface, hop)| {
                let options = netem.options(name, hop, profile.interval_ns);
                format!("tc qdisc add dev \"{interface}\" root netem{options}\nmade=\"$made {interface}\"")
            })
            .collect();
        netem.script = format!(
            "#!/bin/sh\n\
             # Made by longhaul profile. Usage: sh netem.sh INTERFACE-TO-SERVER INTERFACE-TO-CLIENT, as root on a host between both.\n\
             # Undo it on each: tc qdisc del dev INTERFACE root\n\
             # Send packets of at most one frame: ethtool -K INTERFACE tso off gso off gro off\n{}\
             set -eu\n\
             [ $# = 2 ] || {{ echo \"usage: sh netem.sh INTERFACE-TO-SERVER INTERFACE-TO-CLIENT\" >&2; exit 2; }}\n\
             TC_LIB_DIR=$(cd \"$(dirname \"$0\")\" && pwd)\n\
             export TC_LIB_DIR\n\
             # Where one of them fails, none stays.\n\
             made=\n\
             trap 'for interface in $made; do tc qdisc del dev \"$interface\" root; done' EXIT\n\
             {}\n\
             trap - EXIT\n",
            netem
                .not_expressed
                .iter()
                .map(|sentence| format!("# netem cannot express: {sentence}.\n"))
                .collect::<String>(),
            commands.join("\n")
        );
        netem
    }

    /// What follows `netem`.
    fn options(&mut self, name: &'static str, hop: &HopSpec, interval_ns: u64) -> String {
        let mut options = format!(" limit {} delay {}", limit(hop), time(hop.delay.0 as f64));
        // Writing to a string cannot fail.
        if let Some(jitter) = &hop.jitter {
            if let Some(stddev) = self.table(name, jitter) {
                let _ = write!(options, " {} distribution {name}", time(stddev));
            }
            if jitter.correlation.is_some() {
                self.cannot(name, "over what time delays change: each packet draws anew, as netem's correlation would change the distribution");
            }
        }
        match &hop.loss {
            LossSpec::None => {}
            LossSpec::Random(chance) => {
                let _ = write!(options, " loss random {}", percent(chance.0));
            }
            LossSpec::Bursts(bursts) if bursts.every > bursts.lasting => {
                // A chain in continuous time as it is seen once an interval.
                let [to_good, to_bad] =
                    [bursts.lasting, Nanos(bursts.every.0 - bursts.lasting.0)].map(|time| 1.0 / time.0 as f64);
                let leaves = 1.0 - (-(to_good + to_bad) * interval_ns as f64).exp();
                let [to_bad, to_good] = [to_bad, to_good].map(|rate| rate / (to_good + to_bad) * leaves);
                let _ = write!(options, " loss gemodel {} {}", percent(to_bad), percent(to_good));
                if bursts.lost.0 < 1.0 {
                    let _ = write!(options, " {}", percent(bursts.lost.0));
                }
                let apart = Nanos(interval_ns);
                self.cannot(
                    name,
                    &format!(
                        "how long bursts of loss last: they last for as many packets as at {apart} between packets"
                    ),
                );
            }
            _ => self.cannot(name, "the law of loss"),
        }
        if hop.coalesce.is_some() {
            self.cannot(name, "packets that arrive in bunches");
        }
        if hop.delay_steps != DelaySteps::default() {
            self.cannot(name, "shifts of the delay");
        }
        if !hop.outages.is_empty() {
            self.cannot(name, "outages");
        }
        if hop.duplicate.0 > 0.0 {
            let _ = write!(options, " duplicate {}", percent(hop.duplicate.0));
        }
        match hop.rate {
            Some(rate) => {
                let _ = write!(options, " rate {}bit {L1_BYTES}", rate.0);
                if hop.queue != QueueLimit::Unlimited {
                    self.cannot(
                        name,
                        "a queue of bytes: the limit counts packets, and is right for frames of 1,514 bytes",
                    );
                }
                if hop.jitter.as_ref().is_some_and(|jitter| jitter.order == Order::Free) {
                    self.cannot(name, "packets that overtake each other at a rate: with one it keeps their order");
                }
            }
            None if hop.jitter.as_ref().is_some_and(|jitter| jitter.order == Order::Fifo) => {
                let _ = write!(options, " rate {}bit", NO_RATE.0);
            }
            None => {}
        }
        options
    }

    /// Adds a table; the jitter whose 8192nd is its unit, in nanoseconds.
    fn table(&mut self, name: &'static str, jitter: &JitterSpec) -> Option<f64> {
        let Law::Table(law) = &jitter.law else { return None };
        let stddev = jitter.stddev.0 as f64;
        let quantiles = law.quantiles();
        let farthest = quantiles.iter().map(|value| value.abs()).fold(0.0, f64::max);
        let most = REACH / DIST_SCALE;
        let wanted = stddev * (farthest / most).max(1.0);
        let unit = wanted.min(JITTER_MOST_NS).round();
        let scaled = |value: f64| value * stddev / unit * DIST_SCALE;
        let entries: Vec<f64> = match quantiles.len() {
            0..=ENTRIES_MOST => quantiles.iter().copied().map(scaled).collect(),
            _ => (0..ENTRIES_MOST).map(|nth| scaled(law.quantile((nth as f64 + 0.5) / ENTRIES_MOST as f64))).collect(),
        };
        let cut = entries.iter().filter(|entry| entry.round().abs() > REACH).count();
        if cut > 0 {
            let (share, reach) = (cut as f64 / entries.len() as f64, time(unit * most));
            self.cannot(
                name,
                &format!("{} of the delays: those farther than {reach} from the mean are cut to that", percent(share)),
            );
        }
        let one_in = entries.len();
        self.cannot(
            name,
            &format!("delays rarer than one in {one_in} by themselves: the table's ends are their means"),
        );
        let mut text = format!(
            "# Made by longhaul profile: {one_in} quantiles of the delay {name}, 8192 is {} ({:.2} standard deviations).\n",
            time(unit),
            unit / stddev
        );
        for line in entries.chunks(8) {
            let line: Vec<String> =
                line.iter().map(|entry| format!("{}", entry.round().clamp(-REACH, REACH) as i16)).collect();
            let _ = writeln!(text, "{}", line.join(" "));
        }
        self.tables.push((name, text));
        Some(unit)
    }

    fn cannot(&mut self, name: &str, what: &str) {
        self.not_expressed.push(format!("{name}: {what}"));
    }
}

/// Packets that netem holds: those that wait, and those under way.
fn limit(hop: &HopSpec) -> u64 {
    let Some(rate) = hop.rate else { return UNLIMITED_PACKETS };
    let frames = |bytes: u64| bytes.div_ceil(FULL_FRAME_BYTES);
    let waiting = match hop.queue {
        QueueLimit::Unlimited => return UNLIMITED_PACKETS,
        QueueLimit::Bytes(bytes) => frames(bytes.0),
        QueueLimit::Packets(packets) => packets,
    };
    (waiting + frames(rate.bytes_in(hop.delay))).clamp(1, u64::from(u32::MAX))
}

fn time(ns: f64) -> String {
    format!("{:.3}us", ns / 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.6}%", share * 100.0)
}
