//! A path as Linux's netem has it: tables of delay, and the `tc` commands that load them.
//!
//! A table (`.dist`) is signed 16-bit integers, at most 16,384; netem draws one of them for each packet and adds `jitter × integer / 8192` to
//! the delay (`net/sched/sch_netem.c`, `tabledist`). So a table reaches 4 jitters to each side. Where a delay lies farther out than 4 standard
//! deviations, a larger jitter is written, in whose units all of it has room; the steps get as much coarser.
//!
//! Format: `tc-netem(8)`, and iproute2's `tc/q_netem.c` (`get_distribution`), which looks for tables in `$TC_LIB_DIR`.

use std::fmt::Write;

use longhaul_path::law::{DIST_SCALE, Law};
use longhaul_path::spec::{DelaySteps, HopSpec, JitterSpec, Layer, LossSpec, Order, PathSpec, QueueLimit};
use longhaul_units::{BitRate, Nanos};

use crate::path_file::Profile;

/// What the integers reach to each side.
const REACH: f64 = i16::MAX as f64;
/// The longest jitter that the kernel draws with: it is a signed number of 32 bits.
const JITTER_MOST_NS: f64 = i32::MAX as f64;
/// The longest table that is taken: the kernel takes 16,384 numbers of two bytes, and a request of `tc` has 32 KiB for them and all options.
const ENTRIES_MOST: usize = 16_000;
/// L1 counts preamble, FCS and gap, netem what Linux hands the interface.
const L1_BYTES: u64 = 24;
/// The frame that a queue of bytes is counted in, bytes on the wire.
const FULL_FRAME_BYTES: u64 = 1_538;
/// netem also counts what is under way. Without a rate nothing shall be lost for that.
const UNLIMITED_PACKETS: u64 = 1_000_000;
/// A rate that delays nothing: with any rate netem keeps packets in order.
const NO_RATE: BitRate = BitRate(1_000_000_000_000);

/// A path for netem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Netem {
    /// The name of each table's file without `.dist`, and its text.
    pub tables: Vec<(&'static str, String)>,
    /// What follows `netem` at the interface towards the server: a word for each option and each value. Empty without a hop.
    pub forward: Vec<String>,
    /// The same at the interface towards the client.
    pub backward: Vec<String>,
    /// A script that loads them: its arguments are the interface towards the server and the one towards the client.
    pub script: String,
    /// What netem cannot express, each a sentence without its end.
    pub not_expressed: Vec<String>,
    /// Those of them without which the path is another one: a law of loss, hops, a policer. What only gets coarser is not among them.
    pub missing: Vec<String>,
}

impl Netem {
    /// Of a profile.
    pub fn of(profile: &Profile) -> Self {
        Self::of_path(&profile.path, Some(Nanos(profile.interval_ns)))
    }

    /// Of a path. Bursts of loss, which last for a time, become as many packets as there are `interval` apart; without `interval` they are missing.
    pub fn of_path(path: &PathSpec, interval: Option<Nanos>) -> Self {
        let mut netem = Self::default();
        netem.not_expressed.push(
            "both directions at one interface: netem delays what an interface sends: the script takes one each".into(),
        );
        netem.forward = netem.way("forward", &path.forward, interval);
        netem.backward = netem.way("backward", &path.backward, interval);
        if path.clients.iter().chain(&path.servers).any(|host| host.delay > Nanos::ZERO || host.rate.is_some()) {
            netem.lacks("hosts", "delay and rate of their own access");
        }
        if path.clients.len() > 1 || path.servers.len() > 1 {
            netem.lacks("hosts", "several at an end");
        }
        netem.script = netem.written();
        netem
    }

    /// The options of a direction, each a word.
    fn way(&mut self, name: &'static str, hops: &[HopSpec], interval: Option<Nanos>) -> Vec<String> {
        if hops.len() > 1 {
            self.lacks(name, &format!("{} hops: an interface has one netem", hops.len()));
        }
        let options = hops.first().map(|hop| self.options(name, hop, interval)).unwrap_or_default();
        options.split_ascii_whitespace().map(str::to_owned).collect()
    }

    fn written(&self) -> String {
        let ways = [("$1", &self.forward), ("$2", &self.backward)];
        let commands: Vec<String> = ways
            .into_iter()
            .filter(|(_, options)| !options.is_empty())
            .map(|(interface, options)| {
                format!("tc qdisc add dev \"{interface}\" root netem {}\nmade=\"$made {interface}\"", options.join(" "))
            })
            .collect();
        format!(
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
            self.not_expressed
                .iter()
                .map(|sentence| format!("# netem cannot express: {sentence}.\n"))
                .collect::<String>(),
            commands.join("\n")
        )
    }

    /// What follows `netem`.
    fn options(&mut self, name: &'static str, hop: &HopSpec, interval: Option<Nanos>) -> String {
        let mut options = format!(" limit {} delay {}", limit(hop), time(hop.delay.0 as f64));
        // Writing to a string cannot fail.
        if let Some(jitter) = &hop.jitter {
            let stddev = self.table(name, jitter);
            let _ = write!(options, " {} distribution {name}", time(stddev));
            if jitter.correlation.is_some() {
                self.cannot(name, "the time over which delays change: each packet gets a new random delay, because netem's correlation would change the distribution");
            }
        }
        options += &self.loss(name, hop, interval);
        if hop.coalesce.is_some() {
            self.lacks(name, "packets that arrive in bunches");
        }
        if hop.delay_steps != DelaySteps::default() {
            self.lacks(name, "shifts of the delay");
        }
        if !hop.outages.is_empty() {
            self.lacks(name, "outages");
        }
        if hop.mtu.is_some() {
            self.lacks(name, "an MTU of the hop");
        }
        if hop.policer.is_some() {
            self.lacks(name, "a policer");
        }
        if hop.duplicate.0 > 0.0 {
            let _ = write!(options, " duplicate {}", percent(hop.duplicate.0));
        }
        if hop.corrupt.0 > 0.0 {
            let _ = write!(options, " corrupt {}", percent(hop.corrupt.0));
        }
        options + &self.rate(name, hop)
    }

    fn loss(&mut self, name: &'static str, hop: &HopSpec, interval: Option<Nanos>) -> String {
        match (&hop.loss, interval) {
            (LossSpec::None, _) => String::new(),
            (LossSpec::Random(chance), _) => format!(" loss random {}", percent(chance.0)),
            (LossSpec::GilbertElliott { p, r, h, k }, _) => {
                let [p, r, bad, good] = [p.0, r.0, 1.0 - h.0, 1.0 - k.0].map(percent);
                format!(" loss gemodel {p} {r} {bad} {good}")
            }
            (LossSpec::Bursts(bursts), Some(interval)) if bursts.every > bursts.lasting => {
                // A chain in continuous time as it is seen once an interval.
                let [to_good, to_bad] =
                    [bursts.lasting, Nanos(bursts.every.0 - bursts.lasting.0)].map(|time| 1.0 / time.0 as f64);
                let leaves = 1.0 - (-(to_good + to_bad) * interval.0 as f64).exp();
                let [to_bad, to_good] = [to_bad, to_good].map(|rate| rate / (to_good + to_bad) * leaves);
                self.cannot(
                    name,
                    &format!(
                        "how long bursts of loss last: they last for as many packets as at {interval} between packets"
                    ),
                );
                let lost = if bursts.lost.0 < 1.0 { format!(" {}", percent(bursts.lost.0)) } else { String::new() };
                format!(" loss gemodel {} {}{lost}", percent(to_bad), percent(to_good))
            }
            _ => {
                self.lacks(name, "the law of loss");
                String::new()
            }
        }
    }

    fn rate(&mut self, name: &'static str, hop: &HopSpec) -> String {
        let order = hop.jitter.as_ref().map(|jitter| jitter.order);
        match hop.rate {
            Some(rate) => {
                if hop.queue != QueueLimit::Unlimited {
                    self.cannot(
                        name,
                        "a queue of bytes: the limit counts packets, and is right for frames of 1,514 bytes",
                    );
                }
                if order == Some(Order::Free) {
                    self.cannot(name, "reordered packets at a rate: a netem with a rate keeps their order");
                }
                let overhead = if hop.layer == Layer::L1 { L1_BYTES } else { 0 };
                format!(" rate {}bit {overhead}", rate.0)
            }
            None if order == Some(Order::Fifo) => format!(" rate {}bit", NO_RATE.0),
            None => String::new(),
        }
    }

    /// Adds a table; the jitter whose 8192nd is its unit, in nanoseconds.
    fn table(&mut self, name: &'static str, jitter: &JitterSpec) -> f64 {
        let stddev = jitter.stddev.0 as f64;
        let count = match &jitter.law {
            Law::Table(table) => table.quantiles().len().min(ENTRIES_MOST),
            _ => ENTRIES_MOST,
        };
        // Entries of a table that fits are its own: between two of them, a quantile would be their mean.
        let quantiles: Vec<f64> = match &jitter.law {
            Law::Table(table) if count == table.quantiles().len() => table.quantiles().to_vec(),
            law => (0..count).map(|nth| law.quantile((nth as f64 + 0.5) / count as f64)).collect(),
        };
        let farthest = quantiles.iter().map(|value| value.abs()).fold(0.0, f64::max);
        let most = REACH / DIST_SCALE;
        let wanted = stddev * (farthest / most).max(1.0);
        let unit = wanted.min(JITTER_MOST_NS).round().max(1.0);
        let entries: Vec<f64> = quantiles.iter().map(|value| value * stddev / unit * DIST_SCALE).collect();
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
        unit
    }

    fn cannot(&mut self, name: &str, what: &str) {
        self.not_expressed.push(format!("{name}: {what}"));
    }

    fn lacks(&mut self, name: &str, what: &str) {
        self.cannot(name, what);
        self.missing.push(format!("{name}: {what}"));
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
