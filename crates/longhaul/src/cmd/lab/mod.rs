//! `longhaul lab`.

mod exec;
mod holder;
pub(crate) mod links;
pub(crate) mod printed;
pub(crate) mod run;
pub(crate) mod tied;
mod trying;
mod within;

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Subcommand;
use longhaul_kernel::process::allow_many_files;
use longhaul_lab::control::{Client, ControlError, Info, list};
use longhaul_lab::{LabSpec, orphans};
use longhaul_path::preset;
use longhaul_path::spec::{Change, ChangeError, PathSpec, no_files};

use self::holder::{Holder, Order};
use self::printed::{DownParameters, EndedLab, EndedLabs, ListedLab, ListedLabs, MadeLab};
use crate::args::engine::EngineArgs;
use crate::args::listen::in_lab;
use crate::output::status;
use crate::output::{Envelope, Failure, NothingAsked, Outcome, print_caveats, print_json, print_text, say};

/// Create hosts on this machine with an emulated path between them; run programs on them
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
#[command(after_help = "Example:
  longhaul lab up nlr-small
  longhaul lab exec server iperf3 -s -D
  longhaul lab exec client iperf3 -c server
  longhaul lab down
  longhaul lab try --rtt 150ms --rate 1G --loss 0.01% -- ping -c 3 server

Without --name, the environment variable LONGHAUL_LAB names the lab. It is set on a lab's hosts.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the hosts of a path and the path between them
    Up(UpArgs),
    Try(trying::Args),
    /// Run a program on a host
    #[command(after_help = "Example:\n  longhaul lab exec client ping -c 3 server")]
    Exec {
        /// Run it on this host, such as client, server, client2
        host: String,
        #[command(flatten)]
        lab: Which,
        /// Run this program with its arguments
        #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Open a shell on a host; the prompt shows the name of the host
    #[command(after_help = "Example:\n  longhaul lab shell server")]
    Shell {
        /// Open it on this host, such as client, server, client2
        host: String,
        #[command(flatten)]
        lab: Which,
    },
    /// Change the running path, without losing packets in flight
    #[command(after_help = "Example:\n  longhaul lab set delay=50ms 'forward.loss=every(30000)' rate=1Gbit")]
    Set {
        /// Make this change. If several hops have the key, write the direction, hop or host and a dot before it: forward.loss=1%
        #[arg(required = true, value_name = "KEY=VALUE")]
        changes: Vec<String>,
        #[command(flatten)]
        lab: Which,
    },
    Run(crate::cmd::lab::run::Args),
    /// Show packets passed and lost at each hop, its delay, rate, queue and loss now, and the emulator's lateness
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
        /// Run this program with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Create the hosts of a path and the path between them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul lab up tokyo --name t1 --mtu 9000 --cpu 1")]
struct UpArgs {
    /// Create this path: a name from `longhaul paths`, or a path file
    path: String,
    /// Give the lab this name [default: the value of LONGHAUL_LAB, else the path's name]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    making: MakingArgs,
}

/// How a lab is made of its path.
#[derive(Debug, clap::Args)]
struct MakingArgs {
    /// Set this MTU on hosts for which the path sets none
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

impl MakingArgs {
    /// Makes the changes that `--set` asks for.
    fn change(&self, path: &mut PathSpec) -> Result<(), Failure> {
        let read =
            |text: &String| text.parse().map_err(|error: ChangeError| Failure::usage(format!("--set {text}: {error}")));
        let changes: Vec<Change> = self.set.iter().map(read).collect::<Result<_, _>>()?;
        Change::apply(&changes, path).map_err(|error| Failure::usage(format!("--set: {error}")))?;
        Ok(())
    }

    fn spec(&self, name: String) -> LabSpec {
        LabSpec { name, mtu_bytes: self.mtu, offload: self.offload == OnOff::On, ..self.engine.spec() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnOff {
    On,
    Off,
}

/// Selects a lab.
#[derive(Debug, clap::Args)]
struct Which {
    /// Use the lab with this name [default: the value of LONGHAUL_LAB, else the only lab that is up]
    #[arg(long)]
    name: Option<String>,
}

/// The lab that the environment names: on a lab's hosts that one, elsewhere what the user has set.
fn lab_of_environment() -> Option<String> {
    std::env::var("LONGHAUL_LAB").ok().filter(|name| !name.is_empty())
}

impl Which {
    /// The lab that was named, whether or not it is up.
    fn named(&self) -> Option<String> {
        self.name.clone().or_else(lab_of_environment)
    }

    fn find(&self) -> Result<String, Failure> {
        let mut names = list().map_err(control_failure)?;
        match self.named() {
            Some(name) if self.name.is_none() && !names.contains(&name) => {
                Err(Failure::new("no_lab", format!("no lab `{name}` is up, which LONGHAUL_LAB names"))
                    .remedy("choose one of `longhaul lab list` with --name, or unset LONGHAUL_LAB"))
            }
            Some(name) => Ok(name),
            None => match names.len() {
                0 => Err(Failure::new("no_lab", "no lab is up").remedy("longhaul lab up nlr-small")),
                1 => Ok(names.remove(0)),
                _ => {
                    let names = names.join(", ");
                    Err(Failure::usage(format!("several labs are up: {names}; choose one with --name or LONGHAUL_LAB")))
                }
            },
        }
    }

    fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.find()?).map_err(control_failure)
    }
}

fn control_failure(error: ControlError) -> Failure {
    match error {
        ControlError::Name(_) => Failure::usage(error),
        ControlError::InUse(_) => Failure::new("name_in_use", error),
        ControlError::ComingUp { .. } => Failure::new("coming_up", error),
        ControlError::NoLab(_) => Failure::new("no_lab", error),
        ControlError::Refused(_) => Failure::new("refused", error),
        _ => Failure::new("lab", error),
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.action {
        Action::Up(args) => up(args),
        Action::Try(args) => aside(trying::run(args)),
        Action::Exec { host, lab, command } => aside(exec::exec(&lab, &host, &command)),
        Action::Shell { host, lab } => aside(exec::shell(&lab, &host)),
        Action::Set { changes, lab } => {
            lab.client()?.set(changes).map_err(control_failure)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Run(args) => crate::cmd::lab::run::run(args),
        Action::Status { lab, json } => show_status(&lab, json),
        Action::List { json } => show_list(json),
        Action::Down { lab, all, json } => down(&lab, all, json),
        Action::Hold => holder::hold(),
        Action::Within { command } => within::run(&command),
    }
}

/// Of a command that runs another program: its stdout is that program's, and a `--json` among the arguments is not its own.
fn aside(outcome: Outcome) -> Outcome {
    outcome.or_else(|failure| Ok(failure.report_beside()))
}

fn up(args: UpArgs) -> Outcome {
    let mut path = preset::load(&args.path).map_err(Failure::usage)?;
    args.making.change(&mut path)?;
    // On a host of a lab the variable names that lab, not the one that is wanted.
    let from_environment = || lab_of_environment().filter(|_| !in_lab());
    let name = args.name.or_else(from_environment).unwrap_or_else(|| path.name.clone());
    // Names are checked here, so that a wrong one costs nothing.
    let client = Client::new(&name).map_err(control_failure)?;
    clear_orphans(std::slice::from_ref(&name))?;
    let holder = Holder::start(&Order { spec: args.making.spec(name), path: path.to_toml(), tied: false })?;
    let (_, info) = holder.or_down(client.info().map_err(control_failure))?;
    say(format_args!("{}; longhaul lab exec {} COMMAND", came_up(&info, &path), info.hosts[0].plan.name));
    Ok(ExitCode::SUCCESS)
}

/// That a lab is up, and who is in it.
fn came_up(info: &Info, path: &PathSpec) -> String {
    let hosts: Vec<_> = info.hosts.iter().map(|host| format!("{} {}", host.plan.name, host.plan.ipv4)).collect();
    format!("lab {} is up: {}; {} round trip", info.spec.name, hosts.join(", "), path.round_trip())
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
        let links = links::text(&links::links(&path_of(info)));
        print_text(&format!("{}: {}\n{links}", info.spec.name, status::text(&status)));
    }
    print_caveats(&caveats);
}

/// The path of a lab, with all live changes.
fn path_of(info: &Info) -> PathSpec {
    // The lab wrote it.
    PathSpec::parse(&info.path, &no_files).unwrap_or_default()
}

fn show_list(as_json: bool) -> Outcome {
    let names = list().map_err(control_failure)?;
    let (mut infos, mut coming_up) = (Vec::new(), Vec::new());
    for name in names {
        match Client::new(&name).and_then(|client| client.info_now()) {
            Ok(info) => infos.push(info),
            Err(ControlError::ComingUp { pid, .. }) => coming_up.push((name, pid)),
            // A lab may go down while we ask.
            Err(_) => {}
        }
    }
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
        let path = path_of(info);
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
    for (name, pid) in &coming_up {
        text += &format!("{name:<16} {:<36}  pid {pid}\n", "is still coming up");
    }
    print_text(if text.is_empty() { "no lab is up\n" } else { &text });
    Ok(ExitCode::SUCCESS)
}

fn down(lab: &Which, all: bool, as_json: bool) -> Outcome {
    let mut names = list().map_err(control_failure)?;
    if !all {
        let orphaned = orphaned_labs()?;
        names = match lab.named() {
            Some(name) if names.contains(&name) => vec![name],
            Some(name) if orphaned.contains(&name) => Vec::new(),
            None if names.is_empty() && !orphaned.is_empty() => Vec::new(),
            _ => vec![lab.find()?],
        };
    }
    let now = jiff::Timestamp::now().to_string();
    let (mut labs, mut interrupted, mut caveats) = (Vec::new(), BTreeSet::new(), Vec::new());
    for name in &names {
        let client = Client::new(name).map_err(control_failure)?;
        let info = match client.info_now() {
            Ok(info) => Some(info),
            Err(ControlError::ComingUp { .. }) => None,
            Err(error) => return Err(control_failure(error)),
        };
        match (info, client.down().map_err(control_failure)?) {
            (Some(info), Some(status)) => {
                let of_lab = status.caveats(info.spec.lateness_bound);
                caveats.extend(of_lab.iter().map(|caveat| caveat.about(name)));
                labs.push((info, status));
                say(format_args!("lab {name} is down"));
            }
            _ => {
                say(format_args!("lab {name} is down: it was still coming up"));
                interrupted.insert(name.clone());
            }
        }
    }
    let killed = if all { orphaned_labs()? } else { lab.named().map_or_else(orphaned_labs, |name| Ok(vec![name]))? };
    let cleared = clear_orphans(&killed)?;
    if as_json {
        let labs = labs.iter().map(|(info, status)| EndedLab {
            made: MadeLab::of(info),
            started_at: &info.started_at,
            status,
        });
        let result = EndedLabs { labs: labs.collect(), interrupted, cleared };
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
        // Its programs are held while they end.
        let _ = allow_many_files();
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
