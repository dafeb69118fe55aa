//! Running an experiment: a lab for each series, its tests one after the other, and what came of them.

mod mix;
mod tcp;
mod udp;

use crate::caveats;
use std::fmt;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use longhaul_emulator::Status;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::sysctl;
use longhaul_lab::{Lab, LabSpec, plan};
use longhaul_path::spec::PathSpec;
use longhaul_peer::client::{self, Target};
use longhaul_peer::server::{ServeOptions, Server};
use longhaul_report::html::series::{Run, Series};
use longhaul_report::html::{mix as mix_report, tcp_goodput, udp_loss};
use longhaul_result::Caveat;
use longhaul_session::{SessionError, TestEnd, TestParameters};
use longhaul_udp::locate::Loss;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;
use serde_json::Value;

use crate::spec::mix::MixExperiment;
use crate::spec::{Experiment, HostSettings};

/// What happens while an experiment runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A series of UDP tests of this name begins.
    UdpSeries(&'a str),
    /// A UDP test at this rate of payload begins.
    UdpBegins(BitRate),
    /// A UDP test ended.
    Udp(&'a udp_loss::Run),
    /// A series of TCP tests of this name begins.
    TcpSeries(&'a str),
    /// A TCP test ended.
    Tcp(&'a tcp_goodput::Run),
    /// A series of background traffic of this name begins.
    MixSeries(&'a str),
    /// Background traffic was sent at a rate.
    Mix(&'a mix_report::Run),
    /// Background traffic was sent as fast as possible.
    MixMost(&'a mix_report::Most),
    /// What is left of a series cannot be measured: why.
    NotMeasured(String),
}

/// Writes every loss of a UDP test to a file: gets the beginning of the file's name and the losses, returns the name, or why the file
/// could not be written.
pub type SaveLosses<'a> = dyn Fn(&str, &mut dyn Iterator<Item = Loss>) -> Result<String, String> + 'a;

/// How experiments are run.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    /// The labs.
    pub spec: &'a LabSpec,
    /// Ends the test that runs and begins no other.
    pub stop: Stop,
    /// Where losses go that are too many for a result; `None`: nowhere, which is a caveat.
    pub save_losses: Option<&'a SaveLosses<'a>>,
    /// The command that makes the same test by hand.
    pub command: fn(&TestParameters) -> String,
    /// Is told what happens.
    pub tell: &'a dyn Fn(Event<'_>),
}

impl fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("spec", self.spec).finish_non_exhaustive()
    }
}

/// A series with what the emulator of its lab counted.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InLab<R> {
    /// The series.
    #[serde(flatten)]
    pub series: Series<R>,
    /// The emulator's counters; `None` where there was no lab, or it ended badly.
    pub emulator: Option<Status>,
}

/// Client and server, as `longhaul host` shows them.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hosts {
    /// The host that asked for the test.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub client: Value,
    /// The host that answered.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    pub server: Option<Value>,
}

/// What came of an experiment: its series as far as it got.
#[derive(Debug, Default)]
pub struct Ran {
    /// Series of UDP tests.
    pub udp: Vec<InLab<udp_loss::Run>>,
    /// Series of TCP tests.
    pub tcp: Vec<InLab<tcp_goodput::Run>>,
    /// The hosts as the first test saw them; `None` where no test ran.
    pub hosts: Option<Hosts>,
}

impl Ran {
    /// The first error, where there is one and no test has a result.
    pub fn failure(&self) -> Option<&Caveat> {
        fn measured<R: Run>(series: &[InLab<R>]) -> bool {
            series.iter().flat_map(|one| &one.series.runs).any(Run::has_result)
        }
        if measured(&self.udp) || measured(&self.tcp) {
            return None;
        }
        let first = || self.udp.iter().find_map(|one| one.series.first_error());
        first().or_else(|| self.tcp.iter().find_map(|one| one.series.first_error()))
    }

    /// All caveats, each with the series and the test that it is about.
    pub fn caveats(&self) -> Vec<Caveat> {
        let udp = self.udp.iter().flat_map(|one| one.series.placed_caveats());
        let tcp = self.tcp.iter().flat_map(|one| one.series.placed_caveats());
        udp.chain(tcp).map(|(place, caveat)| caveat.about(&place)).collect()
    }

    fn saw(&mut self, end: &TestEnd) {
        self.hosts.get_or_insert_with(|| Hosts {
            client: end.local.host.clone(),
            server: end.remote.as_ref().map(|end| end.host.clone()),
        });
    }
}

impl Runner<'_> {
    /// Runs the series of `experiment`, or those before a stop.
    pub fn run(&self, experiment: &Experiment) -> Ran {
        let mut ran = Ran::default();
        for (number, series) in (1..).zip(&experiment.udp) {
            if self.stop.requested().is_none() {
                (self.tell)(Event::UdpSeries(&series.name));
                let done = self.run_udp((number, series), &mut ran);
                ran.udp.push(done);
            }
        }
        for series in &experiment.tcp {
            if self.stop.requested().is_none() {
                (self.tell)(Event::TcpSeries(&series.name));
                let done = self.run_tcp(series, &mut ran);
                ran.tcp.push(done);
            }
        }
        ran
    }

    /// Raises a lab with `path` and makes the tests of a series in it, or those before a stop.
    fn run_series<T, R: Run>(
        &self,
        mut series: Series<R>,
        path: &PathSpec,
        hosts: &HostSettings,
        tests: impl IntoIterator<Item = T>,
        mut one: impl FnMut(&Lab, T) -> R,
    ) -> InLab<R> {
        let mtu_bytes = hosts.mtu.unwrap_or(self.spec.mtu_bytes);
        let raised = Lab::up(LabSpec { mtu_bytes, ..self.spec.clone() }, path.clone()).and_then(|lab| {
            series.poll_interval_ns.map_or(Ok(()), |interval| lab.poll_receiver("server", Nanos(interval)))?;
            Ok(lab)
        });
        let raised = raised.map_err(|error| lab_failed(&error)).and_then(|lab| {
            set_hosts(&lab, hosts)?;
            Ok(lab)
        });
        let lab = match raised {
            Ok(lab) => lab,
            Err(error) => {
                (self.tell)(Event::NotMeasured(error.message.clone()));
                series.error = Some(error);
                return InLab { series, emulator: None };
            }
        };
        for test in tests {
            if self.stop.requested().is_some() {
                break;
            }
            series.runs.push(one(&lab, test));
        }
        let emulator = match lab.down() {
            Ok(status) => {
                series.caveats = status.caveats(self.spec.lateness_bound);
                Some(status)
            }
            Err(error) => {
                series.caveats.push(lab_failed(&error));
                None
            }
        };
        InLab { series, emulator }
    }

    /// Runs the series of `experiment`, or those before a stop. Each has two hosts and a cable, no path.
    pub fn run_mix(experiment: &MixExperiment, stop: Stop, tell: &dyn Fn(Event<'_>)) -> mix_report::Report {
        mix::run(experiment, stop, tell)
    }
}

/// There is no lab, or it ended badly.
fn lab_failed(error: &dyn fmt::Display) -> Caveat {
    Caveat::new(caveats::LAB, error.to_string(), "run as root, if you do not")
}

/// Sets the hosts of a lab as `wanted`; they end with it.
fn set_hosts(lab: &Lab, wanted: &HostSettings) -> Result<(), Caveat> {
    let switch = |on: bool| if on { "1" } else { "0" };
    for host in lab.hosts() {
        let set = || -> Result<(), String> {
            let parameters = [("net.ipv4.tcp_sack", wanted.sack), ("net.ipv4.tcp_timestamps", wanted.timestamps)];
            for (key, on) in parameters {
                on.map_or(Ok(()), |on| sysctl::write(key, switch(on))).map_err(|error| error.to_string())?;
            }
            if let Some(packets) = wanted.txqueuelen {
                let mut links = Netlink::open().map_err(|error| error.to_string())?;
                let index = links.index_of(plan::HOST_INTERFACE).map_err(|error| error.to_string())?;
                links.set_queue_packets(index, packets).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let done = host.namespace.enter(set).map_err(|error| error.to_string()).and_then(|done| done);
        done.map_err(|error| lab_failed(&format!("{}: {error}", host.plan.name)))?;
    }
    Ok(())
}

/// One test from `client` to the server.
fn test(
    lab: &Lab,
    client: &str,
    parameters: impl Into<TestParameters> + Send,
    stop: Stop,
) -> Result<TestEnd, SessionError> {
    let failed = |error: &dyn fmt::Display| SessionError::new("lab", error.to_string(), "");
    let server = lab.host("server").map_err(|error| failed(&error))?;
    let client = lab.host(client).map_err(|error| failed(&error))?;
    let options = ServeOptions::default();
    let address = SocketAddr::from((server.plan.ipv4, 0));
    let namespace = server.namespace.try_clone().map_err(|error| failed(&error))?;
    let (ready, bound) = mpsc::channel();
    let spec = lab.spec().clone();
    let serving = thread::Builder::new()
        .name("serve".into())
        .spawn(move || {
            spec.keep_off_the_emulator();
            let entered = namespace.enter_for_good().map_err(|error| error.to_string());
            let server = entered.and_then(|()| Server::bind(address, options).map_err(|error| error.to_string()));
            let address = server.as_ref().map_err(Clone::clone).and_then(|s| s.address().map_err(|e| e.to_string()));
            let _ = ready.send(address);
            // It says what went wrong to the client, too. Ctrl-C is the client's, which ends the test and has a result.
            server.map(|server| server.run(None, true, |_| {}))
        })
        .map_err(|error| failed(&error))?;
    let address = bound.recv().map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let target = Target::at(address, None);
    let end = client
        .namespace
        .enter(|| {
            lab.spec().keep_off_the_emulator();
            client::run(&target, parameters, Some(stop), |_| {})
        })
        .map_err(|error| failed(&error))??;
    // Where the client failed it may wait for another for ever; it ends with this process.
    let _ = serving.join();
    Ok(end)
}

/// The server said that the test ended, but not how.
fn no_report() -> Caveat {
    Caveat::new(caveats::NO_REPORT, "the server's report has no result", "")
}
