//! `longhaul lab run`.

pub(crate) mod mix;
pub(crate) mod tcp;
pub(crate) mod text;

use std::fs;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_emulator::Status;
use longhaul_kernel::capability;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::user_namespace;
use longhaul_lab::experiment::{Experiment, UdpSeries};
use longhaul_lab::mix_experiment::MixExperiment;
use longhaul_lab::{Lab, LabError, LabSpec};
use longhaul_measure::client::{self, Target};
use longhaul_measure::server::{ServeOptions, Server};
use longhaul_report::html::udp_loss::{Report, Run, Series};
use longhaul_report::html::{About, tcp_goodput};
use longhaul_result::Caveat;
use longhaul_session::control::{BusyPolicy, Caps, SessionError, TestEnd, TestParameters, UdpParameters};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde_json::{Value, json};

use crate::args::engine::EngineArgs;

use crate::cmd::udp;
use crate::output::saved::Folder;
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, print_caveats, print_json, print_text};

/// Run an experiment: labs, tests in them, a table, a report
///
/// Each series of the experiment gets a lab of its own, which ends with it, or with this command however it ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul lab run nlr-udp-loss -o results && xdg-open results/report.html
  longhaul lab run datatag-loss --realtime 50       # Reno, HighSpeed, Scalable at one loss in 30,000

docs/reference/experiments.md tells what a file of your own may say.")]
pub(crate) struct Args {
    /// An experiment that comes with longhaul (nlr-udp-loss, nlr-tcp, datatag-loss, datatag-fairness, nima), or a file
    experiment: String,
    /// Write result.json and report.html into this folder
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

pub(crate) fn run(args: Args) -> Outcome {
    if let Some(experiment) = MixExperiment::load(&args.experiment).map_err(Failure::usage)? {
        return run_mix(&args, &experiment);
    }
    let experiment = Experiment::load(&args.experiment).map_err(Failure::usage)?;
    let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let folder = args.output.clone().map(Folder::open).transpose()?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    // Before there is a second thread.
    if !capability::is_root_in_namespace() {
        user_namespace::unshare_user_as_root().map_err(|error| Failure::new("lab", error))?;
    }

    let say = |line: &str| if args.json { eprintln!("{line}") } else { print_text(&format!("{line}\n")) };
    let lost = if experiment.tcp.is_empty() { "losses" } else { "windows" };
    say(&format!("{}; rates in Mb/s of payload, {lost} in packets", experiment.title));
    let spec = LabSpec { name: format!("run-{}", std::process::id()), ..args.engine.spec() };
    let mut hosts = Value::Null;
    let mut udp: Vec<(Series, Option<Status>)> = Vec::new();
    let mut tcp: Vec<(tcp_goodput::Series, Option<Status>)> = Vec::new();
    for (number, series) in (1..).zip(&experiment.udp) {
        if stop.requested().is_none() {
            say(&format!("\n{}", text::heading(&series.name)));
            udp.push(run_series((number, series), &spec, folder.as_ref(), stop, &mut hosts, &say));
        }
    }
    for series in &experiment.tcp {
        if stop.requested().is_none() {
            say(&format!("\n{}", tcp::heading(&series.name)));
            tcp.push(tcp::run_series(series, &spec, stop, &mut hosts, &say));
        }
    }

    let interrupted = stop.requested().is_some();
    let of_udp = udp.iter().flat_map(|(series, _)| &series.runs).filter(|run| run.result.is_some()).count();
    let of_tcp = tcp.iter().flat_map(|(series, _)| &series.runs).filter(|run| run.flows.result.is_some()).count();
    let error = || {
        let of_tcp = |series: &tcp_goodput::Series| {
            series.error.clone().or_else(|| series.runs.iter().find_map(|run| run.error.clone()))
        };
        let udp = udp.iter().find_map(|(series, _)| first_error(series).cloned());
        udp.or_else(|| tcp.iter().find_map(|(series, _)| of_tcp(series)))
    };
    if let (0, false, Some(error)) = (of_udp + of_tcp, interrupted, error()) {
        return Err(Failure::from_peer(error.code, error.message).remedy(&error.remedy));
    }
    let mut caveats: Vec<_> = udp.iter().flat_map(|(series, _)| printed_caveats(series)).collect();
    caveats.extend(tcp.iter().flat_map(|(series, _)| tcp::printed_caveats(series)));
    let with_status = |mut value: Value, status: &Option<Status>| {
        value["emulator"] = json!(status);
        value
    };
    let result = json!({
        "interrupted": interrupted,
        "series": udp.iter().map(|(series, status)| with_status(json!(series), status)).collect::<Vec<_>>(),
        "tcp": tcp.iter().map(|(series, status)| with_status(json!(series), status)).collect::<Vec<_>>(),
    });
    let parameters = json!({
        "title": experiment.title,
        "source": experiment.source,
        "note": experiment.note,
        "path": experiment.path.to_toml(),
        "lab": spec,
    });
    let envelope = Envelope::new("longhaul.lab.run/1", started_at.clone(), parameters, result, caveats.clone())
        .with_hosts(hosts.clone());
    if let Some(folder) = &args.output {
        let about = About {
            title: experiment.title,
            source: experiment.source,
            note: experiment.note,
            path: text::path(&experiment.path),
            started_at,
            longhaul: env!("CARGO_PKG_VERSION").to_owned(),
            interrupted,
            hosts: text::hosts(&hosts),
        };
        let html = if experiment.tcp.is_empty() {
            Report { about, series: udp.into_iter().map(|(series, _)| series).collect() }.to_html()
        } else {
            tcp_goodput::Report { about, series: tcp.into_iter().map(|(series, _)| series).collect() }.to_html()
        };
        let object = serde_json::to_string(&envelope).map_err(|error| Failure::new("json", error))?;
        for (name, contents) in [("result.json", object + "\n"), ("report.html", html)] {
            let file = folder.join(name);
            fs::write(&file, contents).map_err(|error| not_written(&file, error))?;
        }
    }
    if args.json {
        print_json(&envelope);
    }
    print_caveats(&text::first_of_each_kind(&caveats));
    if let Some(folder) = &args.output {
        say(&format!("\nreport: {}", folder.join("report.html").display()));
    }
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// An experiment without a path: two hosts and a cable.
fn run_mix(args: &Args, experiment: &MixExperiment) -> Outcome {
    let started_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder).map_err(|error| not_written(folder, error))?;
    }
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let say = |line: &str| if args.json { eprintln!("{line}") } else { print_text(&format!("{line}\n")) };
    say(&experiment.title);
    let report = mix::run(experiment, stop, &say);
    let interrupted = stop.requested().is_some();
    if let (true, Some(error)) = (
        !interrupted && report.series.iter().all(|series| series.runs.is_empty()),
        report.series.iter().find_map(|series| series.error.as_ref()),
    ) {
        return Err(Failure::new("not_measured", error).remedy("run as root, if you do not"));
    }
    let caveats = report.series.iter().filter_map(|series| {
        let error = series.error.as_ref()?;
        Some(Caveat {
            code: "not_measured".into(),
            message: format!("{}: {error}", series.name),
            remedy: String::new(),
        })
    });
    let caveats: Vec<_> = caveats.collect();
    let parameters = json!({
        "title": experiment.title,
        "source": experiment.source,
        "note": experiment.note,
        "mix": experiment.mix.name,
        "time_ns": experiment.time.0,
        "rates_bps": experiment.rates.iter().map(|rate| rate.0).collect::<Vec<_>>(),
    });
    let result = json!({ "interrupted": interrupted, "series": report.series });
    let envelope = Envelope::new("longhaul.lab.run.mix/1", started_at, parameters, result, caveats);
    if let Some(folder) = &args.output {
        let object = serde_json::to_string(&envelope).map_err(|error| Failure::new("json", error))?;
        for (name, contents) in [("result.json", object + "\n"), ("report.html", report.to_html())] {
            let file = folder.join(name);
            fs::write(&file, contents).map_err(|error| not_written(&file, error))?;
        }
        say(&format!("\nreport: {}", folder.join("report.html").display()));
    }
    if args.json {
        print_json(&envelope);
    }
    print_caveats(&envelope.caveats);
    Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The server said that the test ended, but not how.
pub(crate) fn no_report() -> Caveat {
    Caveat::new("no_report", "the server's report has no result", "")
}

fn not_written(path: &Path, error: std::io::Error) -> Failure {
    Failure::new("not_written", format!("cannot write {}: {error}", path.display()))
}

fn first_error(series: &Series) -> Option<&Caveat> {
    series.error.as_ref().or_else(|| series.runs.iter().find_map(|run| run.error.as_ref()))
}

/// The doubts of a series, each with where it arose.
fn printed_caveats(series: &Series) -> Vec<Caveat> {
    let of = |place: String, caveat: &Caveat| caveat.about(&place);
    let whole = series.error.iter().chain(&series.caveats).map(|caveat| of(series.name.clone(), caveat));
    let runs = series.runs.iter().flat_map(|run| {
        let place = format!("{}, {}", series.name, BitRate(run.rate_bps));
        run.error.iter().chain(&run.caveats).map(move |caveat| of(place.clone(), caveat))
    });
    whole.chain(runs).collect()
}

/// Raises a lab and makes the tests of `series` in it; those that were made where `stop` came before the last. `hosts` gets
/// client and server as they were first seen. A test with more losses than a result lists writes them to a file of `folder`, named by
/// the number of the series and its own.
fn run_series(
    (number, series): (usize, &UdpSeries),
    spec: &LabSpec,
    folder: Option<&Folder>,
    stop: Stop,
    hosts: &mut Value,
    say: &impl Fn(&str),
) -> (Series, Option<Status>) {
    let mut done = Series {
        name: series.name.clone(),
        paper: series.paper.clone(),
        changes: series.changes.clone(),
        poll_interval_ns: series.poll_interval.map(|interval| interval.0),
        runs: Vec::new(),
        error: None,
        caveats: Vec::new(),
    };
    let raised = Lab::up(spec.clone(), series.path.clone()).and_then(|lab| {
        series.poll_interval.map_or(Ok(()), |interval| lab.poll_receiver("server", interval))?;
        Ok(lab)
    });
    let lab = match raised {
        Ok(lab) => lab,
        Err(error) => {
            say(&format!("{:>9}  not measured: {error}", ""));
            done.error = Some(lab_failed(error));
            return (done, None);
        }
    };
    for (test_number, rate) in (1..).zip(&series.rates) {
        if stop.requested().is_some() {
            break;
        }
        if std::io::stderr().is_terminal() {
            // The row takes its place.
            eprint!("{:>9.1} …\r", rate.0 as f64 / 1e6);
        }
        let parameters = series.parameters(*rate);
        let mut run = Run {
            rate_bps: rate.0,
            command: command(&parameters),
            parameters: parameters.clone(),
            result: None,
            error: None,
            caveats: Vec::new(),
        };
        match test(&lab, "client", parameters, stop) {
            Ok(end) => {
                if hosts.is_null() {
                    *hosts = json!({ "client": end.local.host, "server": end.remote.as_ref().map(|end| &end.host) });
                }
                let losses = format!("losses-{number}-{test_number}");
                match udp::results(&end, folder, &losses) {
                    Some((granted, results, caveats)) => {
                        (run.parameters, run.result, run.caveats) = (granted, Some(results.into_first()), caveats);
                    }
                    None => run.error = Some(no_report()),
                }
            }
            Err(error) => run.error = Some(Caveat::new(&error.code, error.message, error.remedy)),
        }
        say(&text::row(&run));
        done.runs.push(run);
    }
    let status;
    (done.caveats, status) = end(lab, spec);
    (done, status)
}

/// Takes the lab of a series down: what speaks against trusting it, and where it stood.
pub(crate) fn end(lab: Lab, spec: &LabSpec) -> (Vec<Caveat>, Option<Status>) {
    match lab.down() {
        Ok(status) => {
            let doubts = status.caveats(spec.lateness_bound);
            (doubts, Some(status))
        }
        Err(error) => (vec![lab_failed(error)], None),
    }
}

/// There is no lab, or it ended badly.
pub(crate) fn lab_failed(error: LabError) -> Caveat {
    Caveat::new("lab", error.to_string(), "run as root, if you do not")
}

/// One test from `client` to the server.
pub(crate) fn test(
    lab: &Lab,
    client: &str,
    parameters: impl Into<TestParameters> + Send,
    stop: Stop,
) -> Result<TestEnd, SessionError> {
    let failed = |error: &dyn std::fmt::Display| SessionError::new("lab", error.to_string(), "");
    let server = lab.host("server").map_err(|error| failed(&error))?;
    let client = lab.host(client).map_err(|error| failed(&error))?;
    let options = ServeOptions { key: None, caps: Caps::default(), at_once: 1, policy: BusyPolicy::Refuse };
    let address = SocketAddr::from((server.plan.ipv4, 0));
    let namespace = server.namespace.try_clone().map_err(|error| failed(&error))?;
    let (ready, bound) = std::sync::mpsc::channel();
    let spec = lab.spec().clone();
    let serving = std::thread::Builder::new()
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
    let target = Target { address, key: None };
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

/// What makes the same test by hand.
fn command(parameters: &UdpParameters) -> String {
    use longhaul_session::control::{Amount, Bind};
    let mut words = vec!["longhaul udp server -4".to_owned()];
    words.extend(parameters.rate().map(|rate| format!("-b {rate}")));
    if let Amount::DurationNs(ns) = parameters.amount {
        words.push(format!("-t {}", Nanos(ns)));
    }
    words.push(format!("-l {}", parameters.payload_bytes));
    words.extend(parameters.sockbuf_bytes.map(|bytes| format!("-w {}", Bytes(bytes))));
    words.extend(parameters.wire.then(|| "--wire".to_owned()));
    words.extend(parameters.affinity.bind.map(|bind| match bind {
        Bind::Same => "--bind same".to_owned(),
        Bind::Split => "--bind split".to_owned(),
    }));
    words.join(" ")
}
