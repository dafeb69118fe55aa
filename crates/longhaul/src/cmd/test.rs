//! A test from its arguments to its report, whatever its kind.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use longhaul_kernel::address::own_address;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::sleep_until;
use longhaul_peer::client::{self, Family, Live, Source, Target, Told, reachable, resolve};
use longhaul_peer::control::Remedy;
use longhaul_peer::rtt::LatencyBeside;
use longhaul_report::html::over_time::Tested as Page;
use longhaul_report::text::RateUnit;
use longhaul_result::Caveat;
use longhaul_result::caveats::CUT_SHORT;
use longhaul_result::caveats::SENDER_STOPPED;
use longhaul_session::{TestEnd, TestParameters};
use longhaul_tcp::caveats::FLOW_FAILED;
use longhaul_terms::{Collect, Latency, TestDirection};
use longhaul_units::Nanos;
use serde::Serialize;
use serde_json::Value;

use crate::args::interval::DEFAULT_INTERVAL;
use crate::args::key;
use crate::args::listen::in_lab;
use crate::args::quantity::seconds;
use crate::caveats;
use crate::cmd::serve::PORT;
use crate::output::live::{Lines, Show};
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::saved::{Folder, is_of_test};
use crate::output::{
    Envelope, Failure, Outcome, OutputFile, exit_code, print_result, report_unwritten, say, with_flags,
};

/// How long round trips are measured without load.
const IDLE_TIME: Nanos = Nanos::from_secs(1);

/// Whom to test with, and how to reach it.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// Test against this host, where `longhaul serve` runs
    pub(crate) host: String,
    /// Connect to this port of the server
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Use only IPv4
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Send from this local address
    #[arg(short = 'B', long, value_name = "ADDRESS", value_parser = own_address)]
    bind: Option<SocketAddr>,
    /// Send data from this local port; further streams use the ports after it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    cport: Option<u16>,
    /// Authenticate and encrypt with this key; the server needs the same one
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    key: Option<PathBuf>,
    /// Test without encryption, with a server that does the same
    #[arg(long)]
    no_auth: bool,
}

/// What all kinds of tests take.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Send from the server to the client
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Send in both directions at the same time
    #[arg(long)]
    bidir: bool,
    /// Report every TIME (0: never) [default: 1s; with --json only on a terminal]
    #[arg(short = 'i', long, value_name = "TIME", value_parser = seconds)]
    interval: Option<Nanos>,
    /// Locate losses by the kernel's drop events (bpf), by counters, or not at all (off); auto: by drop events where the host allows them,
    /// else by counters
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = word::<Collect>(&["auto", "bpf", "counters", "off"])
    )]
    pub(crate) collect: Collect,
    /// Measure latency under load: send ICMP echoes to the server during the test, and for 1 s before it
    #[arg(long)]
    latency: bool,
    /// Write rates in this unit: k, m, g, t for bits per second, K, M, G, T for bytes per second [default: by size]
    #[arg(short = 'f', long, value_name = "UNIT")]
    format: Option<RateUnit>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    /// Draw the test over time in this HTML file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) html: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON lines: one per interval, then the result
    #[arg(long, conflicts_with = "json")]
    json_stream: bool,
    #[command(flatten)]
    prometheus: PrometheusArgs,
}

/// A parser of the values that a parameter has in JSON.
pub(crate) fn word<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: serde::de::DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(Value::String(word)))
}

impl Reach {
    /// All of the host's addresses, with `port`; at least one.
    fn addresses(&self, port: u16) -> Result<Vec<SocketAddr>, Failure> {
        let family = match (self.ipv4, self.ipv6, self.bind) {
            (true, ..) | (_, false, Some(SocketAddr::V4(_))) => Some(Family::V4),
            (_, true, _) | (.., Some(SocketAddr::V6(_))) => Some(Family::V6),
            _ => None,
        };
        Ok(resolve(&self.host, port, family)?)
    }

    /// The host's first address with `port`, for probes that need no server, and where they leave from. `no_port` says why these probes
    /// cannot all leave from one port.
    pub(crate) fn address(&self, port: u16, no_port: Option<&str>) -> Result<(SocketAddr, Source), Failure> {
        if let (Some(own), Some(why)) = (self.cport, no_port) {
            return Err(Failure::usage(format!("--cport {own}: {why}")));
        }
        Ok((self.addresses(port)?[0], self.source()))
    }

    /// The address and port of this host to use.
    fn source(&self) -> Source {
        Source { address: self.bind, data_port: self.cport }
    }

    /// The server's address, and the key for it. Of several addresses the first that accepts a connection.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        self.target_or(client::serve)
    }

    /// The same; where no server answers, `remedy` says what to do.
    pub(crate) fn target_or(&self, remedy: Remedy) -> Result<Target, Failure> {
        let addresses = self.addresses(self.port)?;
        let source = self.source();
        let key = self.key.as_deref().map(key::load).transpose()?;
        let is_other = addresses.iter().any(|address| !address.ip().is_loopback());
        if key.is_none() && !self.no_auth && is_other && !in_lab() {
            return Err(Failure::usage(format!("{} is another machine: a test needs --key FILE", self.host)).remedy(
                "make a key with `longhaul key new FILE` and copy it to both hosts, or use --no-auth at both",
            ));
        }
        Ok(Target { address: reachable(&addresses, source, None, remedy)?, key, source })
    }
}

impl TestArgs {
    fn show(&self) -> Show {
        let default = (!self.json).then_some(DEFAULT_INTERVAL);
        Show::choose(self.interval.or(default), self.json, self.json_stream)
    }

    /// Time between interim reports, nanoseconds.
    pub(crate) fn interval_ns(&self) -> Option<u64> {
        // Also where nothing is shown: what the server last said is the result if it is lost.
        Some(self.interval.unwrap_or(DEFAULT_INTERVAL).0).filter(|ns| *ns > 0)
    }

    /// Who sends.
    pub(crate) fn direction(&self) -> Result<TestDirection, Failure> {
        match (self.reverse, self.bidir) {
            (false, false) => Ok(TestDirection::Forward),
            (true, false) => Ok(TestDirection::Reverse),
            (false, true) => Ok(TestDirection::Bidirectional),
            (true, true) => {
                Err(Failure::usage("-R with --bidir: use only one of them: --bidir sends in both directions"))
            }
        }
    }

    /// Runs the test. Calls `live` with what arrived in each interval.
    pub(crate) fn run(
        &self,
        parameters: impl Into<TestParameters>,
        output: Option<PathBuf>,
        mut live: impl FnMut(&Live, &mut Lines),
    ) -> Result<Tested, Failure> {
        let target = self.reach.target()?;
        self.overwrite.file(self.html.as_deref())?;
        if let Some(unit) = self.format {
            unit.use_for_all();
        }
        let metrics = self.prometheus.open(self.overwrite)?;
        let prepare = |folder| Folder::prepare_beside(folder, self.overwrite, &[], is_of_test);
        let folder = output.map(prepare).transpose()?;
        let started_at = jiff::Timestamp::now().to_string();
        let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
        let mut lines = Lines::with_metrics(self.show(), metrics);
        let mut latency = self.latency.then(|| LatencyBeside::start(target.address, target.source)).transpose()?;
        if let Some(latency) = &mut latency {
            // A signal ends the test that follows.
            sleep_until(monotonic() + IDLE_TIME);
            latency.load();
        }
        let end = client::measure(&target, parameters, Some(stop), |told| match told {
            Told::Waiting { ahead } => {
                say(format_args!("the server is busy; tests before this one: {ahead}; Ctrl-C ends"));
            }
            Told::Live(progress) => live(progress, &mut lines),
        });
        lines.end();
        // Without a result nobody waits for the last answers.
        let latency = latency.filter(|_| end.is_ok()).map(LatencyBeside::finish);
        // What was changed on this host is put back; from here on there are only results.
        Stop::release();
        let end = end.map_err(|error| {
            let failure = Failure::from(error);
            if let Some(signal) = stop.requested() { failure.exit(exit_code(signal)) } else { failure }
        })?;
        let json = self.json || self.json_stream;
        let (html, overwrite) = (self.html.clone(), self.overwrite);
        Ok(Tested { end, address: target.address, latency, folder, html, overwrite, started_at, stop, json })
    }
}

/// A test that ran.
pub(crate) struct Tested {
    pub(crate) end: TestEnd,
    /// The server's.
    pub(crate) address: SocketAddr,
    /// Round trips beside the test.
    pub(crate) latency: Option<Latency>,
    /// Where to save the result.
    pub(crate) folder: Option<Folder>,
    /// Where to draw it.
    html: Option<OutputFile>,
    overwrite: Overwrite,
    started_at: String,
    stop: Stop,
    json: bool,
}

impl Tested {
    /// Saves, draws and prints the result: `text` writes it as text, `page` as HTML of the test of that title.
    pub(crate) fn report<P: Serialize, R: Serialize>(
        self,
        schema: &'static str,
        (title, parameters): (String, P),
        results: R,
        mut caveats: Vec<Caveat>,
        text: impl Fn(&P, &R) -> String,
        page: impl FnOnce(&TestEnd, &R, Page<'_>) -> String,
    ) -> Outcome {
        let stopped = self.stop.requested();
        let cut = self.end.cut.as_ref().map(|cut| Failure::from(cut.error.clone()));
        caveats.extend(cut.as_ref().map(|failure| failure.as_caveat(CUT_SHORT)));
        if stopped.is_some() {
            let message = "the test was interrupted before its end";
            caveats.push(Caveat::new(caveats::INTERRUPTED, message, "let it run to its end"));
        }
        let envelope = Envelope::new(schema, self.started_at, parameters, results, Caveat::unique(caveats))
            .with_hosts(Hosts::of(&self.end));
        let saved = self.folder.map_or(Ok(()), |folder| folder.save(&envelope));
        let drawn = self.html.as_ref().map_or(Ok(()), |file| {
            let tested = Page {
                title,
                longhaul: envelope.longhaul.into(),
                started_at: envelope.started_at.clone(),
                caveats: &envelope.caveats,
                text: text(&envelope.parameters, &envelope.result),
                left_out: Vec::new(),
            };
            file.write(&page(&self.end, &envelope.result, tested), self.overwrite)
        });
        print_result(&envelope, self.json, |result| text(&envelope.parameters, result));
        if let Some(failed) = report_unwritten([saved, drawn]) {
            return Ok(failed);
        }
        let is_whole = cut.is_none() && are_whole(&envelope.caveats);
        let otherwise = if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        Ok(stopped.map_or(otherwise, |signal| ExitCode::from(exit_code(signal))))
    }
}

/// Whether the tests that have these caveats came to their end: else a command fails.
pub(crate) fn are_whole(caveats: &[Caveat]) -> bool {
    !caveats.iter().any(|caveat| caveat.is(SENDER_STOPPED) || caveat.is(FLOW_FAILED))
}

/// Refuses a result without a packet.
pub(crate) fn nothing_sent(caveats: &[Caveat]) -> Failure {
    let why = caveats.iter().find(|caveat| caveat.is(SENDER_STOPPED));
    let said = why.map_or_else(String::new, |caveat| format!(": {}", caveat.message));
    let failure = Failure::new("nothing_sent", with_flags(&format!("no packet was sent{said}")));
    failure.remedy(why.map_or_else(String::new, |caveat| with_flags(&caveat.remedy)))
}

/// Why there is no result: the server was lost before there was any, or its report lacks the data.
pub(crate) fn no_report(end: &TestEnd) -> Failure {
    if let Some(cut) = &end.cut {
        return cut.error.clone().into();
    }
    Failure::new("no_report", "the server's report has no result")
        .remedy("use the same version of longhaul at both ends")
}

/// Snapshots of both hosts at the end of the test, as `longhaul host` shows them, by role.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum Hosts<'a> {
    /// One host sent, the other received.
    OneWay {
        /// The host that sent.
        #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
        sender: Option<&'a Value>,
        /// The host that received.
        #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
        receiver: Option<&'a Value>,
    },
    /// Both hosts sent and received (`--bidir`).
    BothWays {
        /// The host that asked for the test.
        #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
        client: Option<&'a Value>,
        /// The host that answered.
        #[cfg_attr(test, schemars(with = "longhaul_host::HostSnapshot"))]
        server: Option<&'a Value>,
    },
}

impl<'a> Hosts<'a> {
    fn of(end: &'a TestEnd) -> Self {
        let client = Some(&end.local.host);
        let server = end.remote.as_ref().map(|remote| &remote.host);
        match end.parameters.kind().direction() {
            TestDirection::Forward => Self::OneWay { sender: client, receiver: server },
            TestDirection::Reverse => Self::OneWay { sender: server, receiver: client },
            TestDirection::Bidirectional => Self::BothWays { client, server },
        }
    }
}
