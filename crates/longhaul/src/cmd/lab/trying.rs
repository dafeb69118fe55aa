//! `longhaul lab try`: a path in one line, and a program on its client host.

use std::io::IsTerminal;

use longhaul_kernel::signals;
use longhaul_kernel::stderr_text;
use longhaul_lab::control::Client;
use longhaul_path::one_line::{OneLine, QueueSize, RoundTrip};
use longhaul_path::spec::{LossSpec, PathSpec};
use longhaul_units::BitRate;

use super::tied::TiedLab;
use super::{MakingArgs, came_up, control_failure};
use crate::cmd::cc::exit_code;
use crate::output::overwrite::Overwrite;
use crate::output::{Failure, Outcome, OutputFile, plain, print_caveats, say};

/// Run a program, or a shell, over a path that one line describes
///
/// The path is the same in both directions. The program runs on the host client; the other host is server. The lab ends with the program,
/// and this command ends with the program's exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul lab try --rtt 150ms --rate 1G --loss 0.01% -- ping -c 3 server
  longhaul lab try --rtt 80ms --rate 100M --queue 0.5bdp   # a shell; `exit` ends the lab
  longhaul lab try --rtt 80ms --rate 100M -- sh -c \\
    'longhaul lab exec server iperf3 -s -D && sleep 1 && iperf3 -c server -t 5'")]
pub(super) struct Args {
    /// Give the path this round trip, such as 150ms; each direction delays by half of it
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    rtt: RoundTrip,
    /// Limit each direction to this rate, such as 1G, on the wire: with preamble, FCS and gap [default: no limit]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<BitRate>,
    /// Lose packets in each direction: a probability such as 0.01%, or a law such as every(30000) [default: none]
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<LossSpec>,
    /// Put a drop-tail queue of this size in front of the rate: in bandwidth-delay products (0.5bdp), bytes (16MiB), packets (1000p),
    /// or unlimited [default: 1bdp]
    #[arg(long, value_name = "SIZE", requires = "rate", allow_hyphen_values = true)]
    queue: Option<QueueSize>,
    /// Write the path file here, not to stderr; `lab up FILE` makes the path again
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<OutputFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Give the lab this name [default: try-PID]
    #[arg(long)]
    name: Option<String>,
    /// Run this program on the client, with its arguments [default: a shell]
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    making: MakingArgs,
}

/// The path's name. A lab of its own has another: there may be several at a time.
const PATH_NAME: &str = "try";

pub(super) fn run(args: Args) -> Outcome {
    let name = args.name.clone().unwrap_or_else(|| format!("{PATH_NAME}-{}", std::process::id()));
    Client::new(&name).map_err(control_failure)?;
    args.overwrite.file(args.output.as_deref())?;
    let path = args.path()?;
    match &args.output {
        Some(output) => output.write(&path.to_toml(), args.overwrite)?,
        None => stderr_text!("{}", plain(&path.to_toml())),
    }
    let lab = TiedLab::up(args.making.spec(name), &path)?;
    say(came_up(&lab.info, &path));

    let unstarted = |error| Failure::new("exec", format!("cannot run a program on the client: {error}"));
    let how = if args.command.is_empty() { "shell" } else { "exec" };
    let mut on_client = lab.longhaul(&[how, "client"]).map_err(unstarted)?;
    if !args.command.is_empty() {
        on_client.arg("--").args(&args.command);
    }
    if std::io::stdin().is_terminal() {
        // Who types Ctrl-C means the program, which may go on. Any other end of this process ends the lab, and the program with it.
        signals::leave_the_keyboard_to_programs().map_err(unstarted)?;
    }
    let ended = exit_code(&["longhaul".into()], on_client.status());
    let bound = lab.info.spec.lateness_bound;
    if let Some(status) = lab.down() {
        print_caveats(&status.caveats(bound));
    }
    ended
}

impl Args {
    /// The path that the line describes.
    fn path(&self) -> Result<PathSpec, Failure> {
        let line = OneLine {
            round_trip: self.rtt,
            rate: self.rate,
            loss: self.loss.clone().unwrap_or_default(),
            queue: self.queue.unwrap_or_default(),
        };
        let mut path = line.path(PATH_NAME, self.making.mtu).map_err(Failure::usage)?;
        self.making.change(&mut path)?;
        Ok(path)
    }
}
