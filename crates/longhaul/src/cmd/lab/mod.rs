//! `longhaul lab`.

pub(crate) mod printed;
pub(crate) mod run;
mod within;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use clap::Subcommand;
use longhaul_kernel::capability;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::user_namespace;
use longhaul_lab::control::{Client, ControlError, Info, Listener, list};
use longhaul_lab::enter::{EnterError, enter};
use longhaul_lab::{Lab, LabSpec, orphans};
use longhaul_path::preset;
use longhaul_path::spec::{Change, ChangeError, PathSpec, no_files};
use serde::{Deserialize, Serialize};

use self::printed::{DownParameters, EndedLab, EndedLabs, ListedLab, ListedLabs, MadeLab};
use crate::args::engine::EngineArgs;
use crate::output::status;
use crate::output::{Envelope, Failure, NothingAsked, Outcome, print_caveats, print_json, print_text, say};

/// Run programs on hosts of this machine with an emulated path between them
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:
  longhaul lab up nlr-small
  longhaul lab exec server -- iperf3 -s -D
  longhaul lab exec client -- iperf3 -c server
  longhaul lab down")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the hosts of a path and the path between them
    Up(UpArgs),
    /// Run a program on a host
    #[command(after_help = "Example:\n  longhaul lab exec client -- ping -c 3 server")]
    Exec {
        /// Name of the host, such as client, server, client2
        host: String,
        #[command(flatten)]
        lab: Which,
        /// Program to run, and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Open a shell on a host
    #[command(after_help = "Example:\n  longhaul lab shell server")]
    Shell {
        /// Name of the host, such as client, server, client2
        host: String,
        #[command(flatten)]
        lab: Which,
    },
    /// Change the running path, without losing packets in flight
    #[command(after_help = "Example:\n  longhaul lab set delay=50ms 'forward.loss=every(30000)' rate=1Gbit")]
    Set {
        /// Change to make. Where several hops have the key, put a direction, or a hop's or host's name, and a dot before it
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        lab: Which,
    },
    Run(crate::cmd::lab::run::Args),
    /// Show packets passed and lost at each hop, and the emulator's lateness
    #[command(after_help = "Example:\n  longhaul lab status --json | jq .result.lateness")]
    Status {
        #[command(flatten)]
        lab: Which,
        /// Print JSON
        #[arg(short = 'J', long)]
        json: bool,
    },
    /// List the labs that are up
    #[command(after_help = "Example:\n  longhaul lab list --json | jq -r '.result.labs[].name'")]
    List {
        /// Print JSON
        #[arg(short = 'J', long)]
        json: bool,
    },
    /// End a lab and the programs in it, and clean up after killed labs
    #[command(after_help = "Example:\n  longhaul lab down --all")]
    Down {
        #[command(flatten)]
        lab: Which,
        /// End all labs
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// Print the last status of each lab as JSON
        #[arg(short = 'J', long)]
        json: bool,
    },
    /// Hold a lab (the process that `up` starts)
    #[command(hide = true)]
    Hold,
    /// Run a program on a host until standard input ends (what `lab run faults` starts)
    #[command(hide = true)]
    Within {
        /// Program to run, and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Create the hosts of a path and the path between them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul lab up tokyo --name t1 --mtu 9000 --cpu 1")]
struct UpArgs {
    /// Path: a name from `longhaul paths`, or a path file
    path: String,
    /// Name of the lab [default: the path's name]
    #[arg(long)]
    name: Option<String>,
    /// MTU of hosts whose MTU the path does not set
    #[arg(long, value_name = "BYTES", default_value_t = longhaul_lab::plan::DEFAULT_MTU, value_parser = clap::value_parser!(u32).range(68..=65535), allow_hyphen_values = true)]
    mtu: u32,
    /// Use segmentation and receive offloads on the hosts' interfaces
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    offload: OnOff,
    /// Change the path before the lab starts, as `lab set` does
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// Selects a lab.
#[derive(Debug, clap::Args)]
struct Which {
    /// Name of the lab [default: the only one that is up]
    #[arg(long)]
    name: Option<String>,
}

impl Which {
    fn find(&self) -> Result<String, Failure> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let mut names = list().map_err(control_failure)?;
        match names.len() {
            0 => Err(Failure::new("no_lab", "no lab is up").remedy("longhaul lab up nlr-small")),
            1 => Ok(names.remove(0)),
            _ => Err(Failure::usage(format!("several labs are up: {}; choose one with --name", names.join(", ")))),
        }
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.find()?).map_err(control_failure)
    }
}

fn control_failure(error: ControlError) -> Failure {
    match error {
        ControlError::Name(_) => Failure::usage(error),
        ControlError::InUse(_) | ControlError::Stranger { .. } => Failure::new("name_in_use", error),
        ControlError::NoLab(_) => Failure::new("no_lab", error),
        ControlError::Refused(_) => Failure::new("refused", error),
        _ => Failure::new("lab", error),
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Action::Up(args) => up(args),
        Action::Exec { host, lab, command } => exec(&lab, &host, command),
        Action::Shell { host, lab } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
            exec(&lab, &host, vec![shell])
        }
        Action::Set { changes, lab } => {
            lab.client()?.set(changes).map_err(control_failure)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Run(args) => crate::cmd::lab::run::run(args),
        Action::Status { lab, json } => show_status(&lab, json),
        Action::List { json } => show_list(json),
        Action::Down { lab, all, json } => down(&lab, all, json),
        Action::Hold => hold(),
        Action::Within { command } => within::run(&command),
    }
}

/// The order from `up` to the process that holds the lab.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    spec: LabSpec,
    path: String,
}

fn up(args: UpArgs) -> Outcome {
    let mut path = preset::load(&args.path).map_err(Failure::usage)?;
    let read =
        |text: &String| text.parse().map_err(|error: ChangeError| Failure::usage(format!("--set {text}: {error}")));
    let changes: Vec<Change> = args.set.iter().map(read).collect::<Result<_, _>>()?;
    Change::apply(&changes, &mut path).map_err(|error| Failure::usage(format!("--set: {error}")))?;
    let name = args.name.unwrap_or_else(|| path.name.clone());
    // Names are checked here, so that a wrong one costs nothing.
    Client::new(&name).map_err(control_failure)?;
    let spec = LabSpec { name, mtu_bytes: args.mtu, offload: args.offload == OnOff::On, ..args.engine.spec() };
    let lab = spec.name.clone();
    clear_orphans(std::slice::from_ref(&lab))?;
    start_holder(&Order { spec, path: path.to_toml() })?;

    let info = Client::new(&lab).and_then(|client| client.info()).map_err(control_failure)?;
    let hosts: Vec<_> = info.hosts.iter().map(|host| format!("{} {}", host.plan.name, host.plan.ipv4)).collect();
    say(format_args!(
        "lab {lab} is up: {}; {} round trip; longhaul lab exec {} -- COMMAND",
        hosts.join(", "),
        path.round_trip(),
        info.hosts[0].plan.name
    ));
    Ok(ExitCode::SUCCESS)
}

/// Starts the process that holds the lab and waits until packets pass, or until it says why not.
fn start_holder(order: &Order) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new("lab", format!("cannot start the lab's process: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut holder = Command::new(program)
        .args(["lab", "hold"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = holder.stdin.take() {
        let order = serde_json::to_string(order).map_err(|error| failed(error.into()))?;
        // A process that ended early says why on the other pipe.
        let _ = writeln!(input, "{order}");
    }
    let mut answer = String::new();
    if let Some(output) = holder.stdout.take() {
        BufReader::new(output).read_line(&mut answer).map_err(failed)?;
    }
    match serde_json::from_str::<Result<(), Refusal>>(&answer) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refusal)) => Err(refusal.failure()),
        Err(_) => {
            let status = holder.wait().map_err(failed)?;
            Err(Failure::new("lab", format!("the lab's process ended before the lab was up: {status}")))
        }
    }
}

/// Why a lab did not come up, as it crosses the pipe.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    in_use: bool,
    message: String,
}

impl Refusal {
    fn failure(self) -> Failure {
        Failure::new(if self.in_use { "name_in_use" } else { "lab" }, self.message)
    }
}

/// The process that holds a lab.
fn hold() -> Outcome {
    let failed = |error: std::io::Error| Failure::new("lab", error);
    // It must outlive the terminal and the process group that started it.
    let _ = rustix::process::setsid();
    longhaul_kernel::schedule::favour_session();
    let mut order = String::new();
    std::io::stdin().read_line(&mut order).map_err(failed)?;
    let order: Order = serde_json::from_str(&order).map_err(|error| failed(error.into()))?;
    match make(order) {
        Err(refusal) => {
            print_json(&Err::<(), _>(refusal));
            Ok(ExitCode::from(1))
        }
        Ok((listener, lab, user_namespace, stop)) => {
            let answered = writeln!(std::io::stdout(), r#"{{"Ok":null}}"#).is_ok();
            if !answered {
                // The process that asked for the lab has ended.
                return Ok(ExitCode::from(1));
            }
            let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
            rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
            rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
            rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))?;
            listener.serve(lab, user_namespace, stop).map_err(failed)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn make(order: Order) -> Result<(Listener, Lab, bool, Stop), Refusal> {
    let refuse = |message: String| Refusal { in_use: false, message };
    let path = PathSpec::parse(&order.path, &no_files).map_err(|error| refuse(error.to_string()))?;
    let listener = Listener::claim(&order.spec.name).map_err(|error| Refusal {
        in_use: matches!(error, ControlError::InUse(_) | ControlError::Stranger { .. }),
        message: error.to_string(),
    })?;
    // Before there is a second thread.
    let user_namespace = !capability::is_root_in_namespace();
    if user_namespace {
        user_namespace::unshare_user_as_root().map_err(|error| refuse(error.to_string()))?;
    }
    let stop = Stop::install().map_err(|error| refuse(error.to_string()))?;
    let lab = Lab::up(order.spec, path).map_err(|error| refuse(error.to_string()))?;
    Ok((listener, lab, user_namespace, stop))
}

fn exec(lab: &Which, host: &str, command: Vec<String>) -> Outcome {
    let info = lab.client()?.info().map_err(control_failure)?;
    let plan = enter(&info, host).map_err(|error| match error {
        EnterError::NoHost { .. } => Failure::usage(error),
        _ => Failure::new("exec", error),
    })?;
    let error = Command::new(&command[0])
        .args(&command[1..])
        .env("LONGHAUL_LAB", &info.spec.name)
        .env("LONGHAUL_HOST", &plan.name)
        .exec();
    Err(Failure::new("exec", format!("cannot run `{}`: {error}", command[0])).remedy("is it installed, and in PATH?"))
}

fn show_status(lab: &Which, as_json: bool) -> Outcome {
    let client = lab.client()?;
    let info = client.info().map_err(control_failure)?;
    let status = client.status().map_err(control_failure)?;
    print_status(&info, status, as_json);
    Ok(ExitCode::SUCCESS)
}

fn print_status(info: &Info, status: longhaul_emulator::Status, as_json: bool) {
    let caveats = status.caveats(info.spec.lateness_bound);
    if as_json {
        let parameters = MadeLab::of(info);
        print_json(&Envelope::new(
            "longhaul.lab.status/1",
            info.started_at.clone(),
            parameters,
            status,
            caveats.clone(),
        ));
    } else {
        print_text(&format!("{}: {}", info.spec.name, status::text(&status)));
    }
    print_caveats(&caveats);
}

fn show_list(as_json: bool) -> Outcome {
    let names = list().map_err(control_failure)?;
    // A lab may go down while we ask.
    let infos: Vec<Info> =
        names.iter().filter_map(|name| Client::new(name).and_then(|client| client.info()).ok()).collect();
    if as_json {
        let labs = infos.iter().map(|info| ListedLab {
            name: &info.spec.name,
            pid: info.pid,
            started_at: &info.started_at,
            hosts: &info.hosts,
        });
        let result = ListedLabs { labs: labs.collect() };
        let now = jiff::Timestamp::now().to_string();
        print_json(&Envelope::new("longhaul.lab.list/1", now, NothingAsked {}, result, Vec::new()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for info in &infos {
        let path = PathSpec::parse(&info.path, &no_files).unwrap_or_default();
        let hosts: Vec<_> = info.hosts.iter().map(|host| host.plan.name.as_str()).collect();
        text += &format!(
            "{:<16} {:<20} {:>15}  pid {:<8} {}\n",
            info.spec.name,
            path.name,
            path.round_trip(),
            info.pid,
            hosts.join(" ")
        );
    }
    print_text(if infos.is_empty() { "no lab is up\n" } else { &text });
    Ok(ExitCode::SUCCESS)
}

fn down(lab: &Which, all: bool, as_json: bool) -> Outcome {
    let mut names = list().map_err(control_failure)?;
    if !all {
        let orphaned = orphaned_labs()?;
        names = match &lab.name {
            Some(name) if names.contains(name) => vec![name.clone()],
            Some(name) if orphaned.contains(name) => Vec::new(),
            None if names.is_empty() && !orphaned.is_empty() => Vec::new(),
            _ => vec![lab.find()?],
        };
    }
    let now = jiff::Timestamp::now().to_string();
    let (mut labs, mut caveats) = (Vec::new(), Vec::new());
    for name in &names {
        let client = Client::new(name).map_err(control_failure)?;
        let info = client.info().map_err(control_failure)?;
        let status = client.down().map_err(control_failure)?;
        let of_lab = status.caveats(info.spec.lateness_bound);
        caveats.extend(of_lab.iter().map(|caveat| caveat.about(name)));
        labs.push((info, status));
        say(format_args!("lab {name} is down"));
    }
    let killed = if all || lab.name.is_none() { orphaned_labs()? } else { lab.name.clone().into_iter().collect() };
    let cleared = clear_orphans(&killed)?;
    if as_json {
        let labs = labs.iter().map(|(info, status)| EndedLab {
            made: MadeLab::of(info),
            started_at: &info.started_at,
            status,
        });
        let result = EndedLabs { labs: labs.collect(), cleared };
        print_json(&Envelope::new("longhaul.lab.down/1", now, DownParameters { all }, result, caveats.clone()));
    }
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

/// Namespaces that no living lab holds.
fn find_orphans() -> Result<Vec<orphans::Orphan>, Failure> {
    orphans::find().map_err(|error| Failure::new("lab", format!("cannot look for what killed labs left: {error}")))
}

/// Labs that were killed while programs ran in them.
fn orphaned_labs() -> Result<Vec<String>, Failure> {
    let mut labs: Vec<String> = find_orphans()?.into_iter().map(|orphan| orphan.lab).collect();
    labs.sort();
    labs.dedup();
    Ok(labs)
}

/// Ends the programs that killed labs of these names left, and gives the names of those that had left some.
fn clear_orphans(labs: &[String]) -> Result<BTreeSet<String>, Failure> {
    let mut cleared = BTreeSet::new();
    for orphan in find_orphans()?.iter().filter(|orphan| labs.contains(&orphan.lab)) {
        let ended = orphan.end().map_err(|error| {
            Failure::new("lab", format!("programs of the killed lab {} do not end: {error}", orphan.lab))
        })?;
        if ended > 0 {
            say(format_args!("ended {ended} programs that the killed lab {} left", orphan.lab));
            cleared.insert(orphan.lab.clone());
        }
    }
    Ok(cleared)
}
