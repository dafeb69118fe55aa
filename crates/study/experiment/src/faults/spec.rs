//! What a fault is: the text form of the files in `experiments/faults/` (`docs/reference/faults.md` has every key).
//!
//! ```toml
//! title = "The receiver's TCP may buffer 256 KiB"
//! code = "receive_window"
//! host = "receiver"
//! server = ['sysctl -w net.ipv4.tcp_rmem="4096 131072 262144"']
//! [[measured]]
//! rtt = "80ms"
//! faulty = "15.8M"
//! fixed = "90.8M"
//! ```
//!
//! A fault is fixed by leaving out everything that makes it. What fixing is worth was measured with `longhaul tcp`; it is the truth
//! that a diagnosis is compared with, and decides whether the fault is a cause or deserves a finding alone.

use longhaul_diagnosis::{Code, Role};
use longhaul_path::spec::Change;
use longhaul_result::Location;
use longhaul_units::{BitRate, Nanos};
use serde::{Deserialize, Serialize};

use crate::spec::{ExperimentError, name_of, read_toml};

/// Fixing a fault must multiply the goodput by this before a diagnosis has to name it as a cause: below it, the spread of TCP tests over
/// one path is no smaller than what the fault costs.
pub const SCORED_RATIO: f64 = 1.3;
/// Commands, programs and round trips of a fault at most.
const LIST_MOST: usize = 16;
/// Longest command, in bytes.
const COMMAND_BYTES_MOST: usize = 1000;
/// The rates of a fault's link: below, tests take too long; above, a small machine cannot emulate the path packet by packet.
const RATES: std::ops::RangeInclusive<BitRate> = BitRate(1_000_000)..=BitRate(1_000_000_000);
/// The round trips of a fault's path.
const ROUND_TRIPS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(1);

/// A fault, a pair of faults, or a path without one.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Its file's name without `.toml`.
    pub name: String,
    /// What is wrong, in a line.
    pub title: String,
    /// What should be named: one cause, two for a pair, none where nothing is wrong.
    pub causes: Vec<ExpectedCause>,
    /// The code of the finding that tells of it where it costs too little for a cause; empty: none.
    pub finding: String,
    /// The rate of the slowest link, on the wire, and the target of the diagnosis.
    pub rate: BitRate,
    /// Round trips that it is tried with; the standard run has the first.
    pub round_trips: Vec<Nanos>,
    /// The sender's congestion control.
    pub congestion: String,
    /// Whether the server sends.
    pub reverse: bool,
    /// Whether some flows meet it and others do not, by their ports.
    pub some_flows: bool,
    /// The forms of `longhaul diagnose` without a test of their own that name it.
    pub found_by: Vec<Form>,
    /// How it is made.
    pub making: Making,
    /// What it costs.
    pub measured: Vec<Measured>,
}

/// A cause that a diagnosis should name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedCause {
    /// The limit.
    pub code: Code,
    /// Where packets are lost, or wait; `None`: not scored.
    pub place: Option<Location>,
    /// At which host; `None`: the network, or it does not matter.
    pub host: Option<Role>,
}

/// A form of `longhaul diagnose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// `diagnose HOST`: tests.
    Test,
    /// `diagnose --watch` or `diagnose -- COMMAND` on the host that sends.
    Sender,
    /// The same on the host that receives.
    Receiver,
    /// `diagnose trace` of a capture made on the host that sends.
    Packets,
}

impl Form {
    /// Its name in JSON and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Packets => "packets",
        }
    }
}

/// How a fault is made. Without any of it the path is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Making {
    /// Changes of the path, as `lab set` takes them.
    pub change: Vec<String>,
    /// Commands for a shell on the client.
    pub client: Vec<String>,
    /// The same on a router between path and server; with any there is such a router.
    pub router: Vec<String>,
    /// The same on the server.
    pub server: Vec<String>,
    /// Parallel links between router and server, by which flows are shared out by their ports.
    pub members: Option<u8>,
    /// The server's ring is polled as seldom as that.
    pub poll_interval: Option<Nanos>,
    /// What `longhaul serve` is started by, such as `nice -n 19`.
    pub serve: String,
    /// The congestion control that is the fault; empty: none is.
    pub control: String,
    /// Options that make the program under test behave as the fault wants it.
    pub test: Vec<String>,
    /// Programs that run beside it.
    pub beside: Vec<Beside>,
}

/// A program that runs beside a test.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// Where it runs.
    pub host: HostName,
    /// A command for a shell. `$SERVER` is the server's address.
    pub run: String,
}

/// A host of a fault's lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostName {
    /// It asks for tests.
    Client,
    /// A second one beside it, for traffic of others.
    Client2,
    /// Between path and server.
    Router,
    /// It answers tests.
    Server,
}

/// What a fault costs at a round trip: payload that one flow carried, bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The round trip.
    pub rtt: Nanos,
    /// With the fault.
    pub faulty: BitRate,
    /// Fixed.
    pub fixed: BitRate,
}

impl Measured {
    /// How many times as much TCP carries once it is fixed.
    pub fn ratio(&self) -> f64 {
        self.fixed.0 as f64 / self.faulty.0.max(1) as f64
    }

    /// Whether it costs enough to be a cause.
    pub fn is_scored(&self) -> bool {
        self.ratio() >= SCORED_RATIO
    }
}

/// The text form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    title: String,
    #[serde(default)]
    #[allow(dead_code, reason = "it is for who reads the file")]
    note: String,
    code: Option<Code>,
    place: Option<Location>,
    host: Option<Role>,
    #[serde(default)]
    finding: String,
    /// Two faults that are there together.
    pair: Option<[String; 2]>,
    #[serde(default = "rate")]
    rate: BitRate,
    #[serde(default = "round_trips")]
    rtt: Vec<Nanos>,
    #[serde(default = "congestion")]
    congestion: String,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    some_flows: bool,
    #[serde(default)]
    found_by: Vec<Form>,
    #[serde(default)]
    change: Vec<String>,
    #[serde(default)]
    client: Vec<String>,
    #[serde(default)]
    router: Vec<String>,
    #[serde(default)]
    server: Vec<String>,
    members: Option<u8>,
    poll_interval: Option<Nanos>,
    #[serde(default)]
    serve: String,
    #[serde(default)]
    control: String,
    #[serde(default)]
    test: Vec<String>,
    #[serde(default)]
    beside: Vec<Beside>,
    #[serde(default)]
    measured: Vec<MeasuredText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredText {
    rtt: Nanos,
    faulty: BitRate,
    fixed: BitRate,
}

fn rate() -> BitRate {
    BitRate(100_000_000)
}

/// A continent, a campus, half the world.
fn round_trips() -> Vec<Nanos> {
    [80, 10, 200].map(Nanos::from_millis).to_vec()
}

/// What most hosts use.
fn congestion() -> String {
    "cubic".into()
}

impl Fault {
    /// Reads the text of fault `name`. `find` gives the text of the faults that a pair names.
    ///
    /// # Errors
    /// The text is not TOML, lacks a key, or has an unknown key or a value that is not allowed.
    pub fn parse(name: &str, text: &str, find: &dyn Fn(&str) -> Option<&'static str>) -> Result<Self, ExperimentError> {
        let written: Text = read_toml(text)?;
        let pair = written.pair.clone();
        let mut fault = Self::of_text(name, written)?;
        for single in pair.into_iter().flatten() {
            let of_pair = |error: ExperimentError| ExperimentError::at("pair", error);
            let text = find(&single).ok_or_else(|| of_pair(ExperimentError::at(&single, "no such fault")))?;
            let single = Self::parse(&single, text, &|_| None).map_err(of_pair)?;
            fault.join(single);
        }
        Ok(fault)
    }

    fn of_text(name: &str, written: Text) -> Result<Self, ExperimentError> {
        let title = name_of("title", &written.title)?;
        if !RATES.contains(&written.rate) {
            let allowed = format!("{}: {} to {}", written.rate, RATES.start(), RATES.end());
            return Err(ExperimentError::at("rate", allowed));
        }
        if !(1..=LIST_MOST).contains(&written.rtt.len()) || written.rtt.iter().any(|rtt| !ROUND_TRIPS.contains(rtt)) {
            let allowed = format!("1 to {LIST_MOST} round trips, {} to {}", ROUND_TRIPS.start(), ROUND_TRIPS.end());
            return Err(ExperimentError::at("rtt", allowed));
        }
        let making = Making {
            change: written.change,
            client: written.client,
            router: written.router,
            server: written.server,
            members: written.members,
            poll_interval: written.poll_interval,
            serve: written.serve,
            control: written.control,
            test: written.test,
            beside: written.beside,
        };
        making.check()?;
        let of = |code| ExpectedCause { code, place: written.place, host: written.host };
        let measured = |row: MeasuredText| Measured { rtt: row.rtt, faulty: row.faulty, fixed: row.fixed };
        Ok(Self {
            name: name.to_owned(),
            title,
            causes: written.code.map(of).into_iter().collect(),
            finding: written.finding,
            rate: written.rate,
            round_trips: written.rtt,
            congestion: written.congestion,
            reverse: written.reverse,
            some_flows: written.some_flows,
            found_by: written.found_by,
            making,
            measured: written.measured.into_iter().map(measured).collect(),
        })
    }

    /// Adds what makes `other`, and what should be named then.
    fn join(&mut self, other: Self) {
        self.causes.extend(other.causes);
        self.reverse |= other.reverse;
        self.some_flows |= other.some_flows;
        let (own, its) = (&mut self.making, other.making);
        for (list, more) in [
            (&mut own.change, its.change),
            (&mut own.client, its.client),
            (&mut own.router, its.router),
            (&mut own.server, its.server),
            (&mut own.test, its.test),
        ] {
            list.extend(more);
        }
        own.members = own.members.or(its.members);
        own.poll_interval = own.poll_interval.or(its.poll_interval);
        for (word, other) in [(&mut own.serve, its.serve), (&mut own.control, its.control)] {
            if word.is_empty() {
                *word = other;
            }
        }
        own.beside.extend(its.beside);
    }

    /// What it costs at `rtt`; `None` where that was not measured.
    pub fn measured_at(&self, rtt: Nanos) -> Option<&Measured> {
        self.measured.iter().find(|row| row.rtt == rtt)
    }

    /// Whether two faults are there together.
    pub fn is_pair(&self) -> bool {
        self.causes.len() > 1
    }

    /// Whether it takes the CPU of a test.
    pub fn takes_a_cpu(&self) -> bool {
        self.causes.iter().any(|cause| cause.code == Code::Cpu)
    }

    /// Whether nothing is wrong.
    pub fn is_healthy(&self) -> bool {
        self.making == Making::default()
    }
}

impl Making {
    fn check(&self) -> Result<(), ExperimentError> {
        let beside = self.beside.iter().map(|program| &program.run);
        for (key, count) in [
            ("client", self.client.len()),
            ("router", self.router.len()),
            ("server", self.server.len()),
            ("change", self.change.len()),
            ("test", self.test.len()),
            ("beside", self.beside.len()),
        ] {
            if count > LIST_MOST {
                return Err(ExperimentError::at(key, format!("{count} of them, {LIST_MOST} at most")));
            }
        }
        for command in self.client.iter().chain(&self.router).chain(&self.server).chain(beside) {
            if command.is_empty() || command.len() > COMMAND_BYTES_MOST || command.contains('\0') {
                return Err(ExperimentError::at("a command", format!("1 to {COMMAND_BYTES_MOST} bytes")));
            }
        }
        for text in &self.change {
            Change::parse(text).map_err(|error| ExperimentError::at("change", error))?;
        }
        if self.members.is_some_and(|members| !(1..=8).contains(&members)) {
            return Err(ExperimentError::at("members", "1 to 8"));
        }
        Ok(())
    }

    /// Whether there is a router between path and server.
    pub fn has_router(&self) -> bool {
        !self.router.is_empty() || self.members.is_some()
    }

    /// Whether a second client is there.
    pub fn has_second_client(&self) -> bool {
        self.beside.iter().any(|program| program.host == HostName::Client2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "The receiver's TCP may buffer 256 KiB"
code = "receive_window"
host = "receiver"
rate = "200M"
change = ["forward.loss=random(0.1%)"]
server = ['sysctl -qw net.ipv4.tcp_rmem="4096 131072 262144"']
[[beside]]
host = "client2"
run = "iperf3 -c $SERVER"
[[measured]]
rtt = "80ms"
faulty = "15M"
fixed = "90M"
"#;

    #[test]
    fn a_fault_says_what_it_costs() {
        let fault = Fault::parse("good", GOOD, &|_| None).unwrap();
        assert_eq!(fault.causes[0].code, Code::ReceiveWindow);
        let measured = fault.measured_at(Nanos::from_millis(80)).unwrap();
        assert!(measured.is_scored() && (measured.ratio() - 6.0).abs() < 1e-9);
        assert_eq!(fault.measured_at(Nanos::from_millis(10)), None);
        assert!(fault.making.has_second_client() && !fault.making.has_router());
    }

    /// One line each: the key, and what is allowed.
    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let long = format!("'{}'", "x".repeat(COMMAND_BYTES_MOST + 1));
        for (from, to, said) in [
            ("code =", "cod =", "unknown field `cod`"),
            ("\"receive_window\"", "\"window\"", "unknown variant `window`"),
            ("\"receiver\"", "\"server\"", "unknown variant `server`"),
            ("\"200M\"", "\"200G\"", "rate: 200Gbit: 1Mbit to 1Gbit"),
            ("forward.loss", "forward.los", "change: `los`: no such key"),
            ("\"client2\"", "\"client3\"", "unknown variant `client3`"),
            ("rate = \"200M\"", "rtt = []", "rtt: 1 to 16 round trips"),
            ("rate = \"200M\"", "members = 9", "members: 1 to 8"),
            ("rate = \"200M\"", "pair = [\"a\", \"b\"]", "pair: a: no such fault"),
            ("'sysctl -qw net.ipv4.tcp_rmem=\"4096 131072 262144\"'", &long, "a command: 1 to 1000 bytes"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Fault::parse("bad", &text, &|_| None).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{to}: {error}");
        }
    }
}
