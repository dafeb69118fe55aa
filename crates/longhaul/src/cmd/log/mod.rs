//! `longhaul log`.

pub(crate) mod text;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_capture::{LogHost, LogOptions, Received};
use longhaul_captures::log_link::LinkProgress;
use longhaul_kernel::address::at_port;
use longhaul_kernel::process::allow_many_files;
use longhaul_kernel::signals::Stop;
use longhaul_units::Bytes;
use serde::Serialize;

use crate::args::listen::{Listen, Listening, not_bound};
use crate::args::roll::Roll;
use crate::cmd::log::text::Account;
use crate::output::limited::LimitedLines;
use crate::output::live::Stamp;
use crate::output::overwrite::Overwrite;
use crate::output::prometheus::PrometheusArgs;
use crate::output::saved::open_folder_at;
use crate::output::{Envelope, Failure, Outcome, ended_by, print_result, say};

/// The port of the control connections and of the first capture's datagrams. `longhaul serve` has 5210.
pub(crate) const PORT: u16 = 5211;

/// Receive and store the packet headers that captures on other hosts send
///
/// Writes each `longhaul capture --to` this host into a folder of its own in DIR. The folder is a spool: `longhaul convert`, `analyze` and
/// `compare` read it like a local capture. Counts what the link loses, and when. Listens only on loopback (in a lab: on all addresses);
/// --bind changes that, and then needs --key. Runs until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul log -o captures --bind 0.0.0.0 --key longhaul.key")]
pub(crate) struct Args {
    /// Write captures into this folder; create it if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    listen: Listen,
    /// Listen at this port: TCP for control, UDP for the first capture (others get a free UDP port)
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Accept this many captures at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    captures: usize,
    /// End a capture after it has written this much
    #[arg(long, value_name = "BYTES")]
    bytes_cap: Option<Bytes>,
    /// End all captures, and refuse further ones, when the folder has this much
    #[arg(long, value_name = "BYTES")]
    folder_cap: Option<Bytes>,
    #[command(flatten)]
    roll: Roll,
    /// Accept one capture, then end
    #[arg(short = '1', long)]
    once: bool,
    /// Print JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    overwrite: Overwrite,
}

/// The parameters of the result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The folder that contains the folders of captures.
    output: PathBuf,
    /// The address and port that it listened on.
    address: SocketAddr,
    /// Whether captures needed a key.
    encrypted: bool,
}

/// One capture that runs, for Prometheus.
#[derive(Serialize)]
struct Interval {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    peer: IpAddr,
    folder: String,
    #[serde(flatten)]
    so_far: LinkProgress,
}

impl Interval {
    fn of(Received { peer, folder, so_far }: Received) -> Self {
        let (schema, stamp) = ("longhaul.log.interval/1", Stamp::now());
        Self { schema, stamp, peer: peer.ip(), folder: folder.display().to_string(), so_far }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let (address, options) = args.options()?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let started_at = jiff::Timestamp::now().to_string();
    let encrypted = options.key.is_some();
    let metrics = args.prometheus.open(args.overwrite)?;
    // Each connection takes two or three. With the limit as it was there is room for fewer.
    let _ = allow_many_files();
    let host = LogHost::bind(address, options).map_err(|error| not_bound(address, &error, "logging host"))?;
    say(format_args!("logging into {} at {}; Ctrl-C ends", args.output.display(), host.address().unwrap_or(address)));
    let account = Arc::new(Mutex::new(Account::default()));
    let entering = Arc::clone(&account);
    // Lines about strangers leave room for those about captures.
    let (captures, failures) = (Arc::new(LimitedLines::default()), LimitedLines::default());
    let beginning = Arc::clone(&captures);
    let serve = || {
        host.run(
            stop,
            args.once,
            move |peer, folder| beginning.say(format_args!("{peer}: a capture begins in {}", folder.display())),
            move |peer, ended| {
                let lines = if ended.is_ok() { &*captures } else { &failures };
                let line = entering.lock().unwrap_or_else(PoisonError::into_inner).enter(peer, ended);
                lines.say(line);
            },
        )
    };
    let served = match metrics {
        None => serve(),
        Some(file) => file.keep(|| host.received().into_iter().map(Interval::of).collect(), serve),
    };
    served.map_err(|error| Failure::new("log", error))?;

    let account = account.lock().unwrap_or_else(PoisonError::into_inner);
    let parameters = Parameters { output: args.output, address: host.address().unwrap_or(address), encrypted };
    let envelope = Envelope::new("longhaul.log/1", started_at, parameters, account.result(), account.caveats());
    print_result(&envelope, args.json, |_| account.text());
    Ok(ended_by(stop.requested()))
}

impl Args {
    fn options(&self) -> Result<(SocketAddr, LogOptions), Failure> {
        let Listening { address, key, .. } = self.listen.check()?;
        let roll_bytes = self.roll.roll_bytes()?;
        if self.captures == 0 {
            return Err(Failure::usage("--captures 0: give at least 1"));
        }
        // Fail now rather than at the first capture.
        let folder = open_folder_at(&self.output).map_err(|error| {
            Failure::new("not_written", format!("{}: {error}", self.output.display()))
                .remedy("name a writable folder with --output")
        })?;
        let options = LogOptions {
            key,
            folder,
            folder_name: self.output.clone(),
            roll_bytes,
            roll_time: self.roll.roll_time,
            keep_bytes: self.roll.keep,
            bytes_most: self.bytes_cap,
            folder_bytes_most: self.folder_cap,
            captures_most: self.captures,
            stamp: || jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string(),
        };
        Ok((at_port(address, self.port), options))
    }
}
