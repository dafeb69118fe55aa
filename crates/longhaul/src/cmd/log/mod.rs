//! `longhaul log`.

pub(crate) mod text;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_capture::{LogHost, LogOptions};
use longhaul_units::Bytes;
use serde_json::json;

use crate::args::listen::{Listen, Listening, not_bound};
use crate::args::roll::Roll;
use crate::cmd::log::text::Account;
use crate::output::{Envelope, Failure, INTERRUPTED, Outcome, print_caveats, print_json, print_text};

/// The port of the control connections, and of the first capture's datagrams: beside that of `longhaul serve`.
pub(crate) const PORT: u16 = 5211;

/// Take the heads that captures on other hosts send here
///
/// Each `longhaul capture --to` this host gets a folder of its own in DIR: a spool, which `longhaul convert`, `analyze` and `compare` read
/// as one that was captured here. What the link loses is counted, with its times. Listens on loopback alone, or within a lab on all of
/// its addresses, unless --bind says otherwise; beyond those it wants --key. Takes Ctrl-C to end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul log -o captures --bind 0.0.0.0 --key longhaul.key")]
pub(crate) struct Args {
    /// Folder for the captures; made where it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    listen: Listen,
    /// Port: TCP, and UDP for datagrams of the first capture; those beside it get any
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Captures at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    captures: usize,
    /// End a capture that has written this much
    #[arg(long, value_name = "BYTES")]
    bytes_cap: Option<Bytes>,
    #[command(flatten)]
    roll: Roll,
    /// Take one capture and end
    #[arg(short = '1', long)]
    once: bool,
    /// Print JSON at the end
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let (address, options) = args.options()?;
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let started_at = jiff::Timestamp::now().to_string();
    let encrypted = options.key.is_some();
    let host = LogHost::bind(address, options).map_err(|error| not_bound(address, &error, "logging host"))?;
    eprintln!("longhaul: logging into {} at {}; Ctrl-C ends", args.output.display(), host.address().unwrap_or(address));
    let account = Arc::new(Mutex::new(Account::default()));
    let entering = Arc::clone(&account);
    host.run(
        stop,
        args.once,
        |peer, folder| eprintln!("longhaul: {peer}: a capture begins, into {}", folder.display()),
        move |peer, ended| {
            let mut account = entering.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("longhaul: {}", account.enter(peer, ended));
        },
    )
    .map_err(|error| Failure::new("log", error))?;

    let account = account.lock().unwrap_or_else(PoisonError::into_inner);
    let caveats = account.caveats();
    if args.json {
        let parameters = json!({
            "output": args.output, "address": host.address().unwrap_or(address).to_string(), "encrypted": encrypted,
        });
        let result = account.result();
        print_json(&Envelope::new("longhaul.log/1", started_at, parameters, result, caveats.clone()));
    } else {
        print_text(&account.text());
    }
    print_caveats(&caveats);
    Ok(match stop.requested() {
        Some(StopSignal::Interrupt) => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    })
}

impl Args {
    fn options(&self) -> Result<(SocketAddr, LogOptions), Failure> {
        let Listening { address, key, .. } = self.listen.check()?;
        let roll_bytes = self.roll.roll_bytes()?;
        if self.captures == 0 {
            return Err(Failure::usage("--captures 0: 1 at least"));
        }
        let options = LogOptions {
            key,
            folder: self.output.clone(),
            roll_bytes,
            roll_time: self.roll.roll_time,
            keep_bytes: self.roll.keep,
            bytes_most: self.bytes_cap,
            captures_most: self.captures,
            stamp: || jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string(),
        };
        // Where it cannot be written a capture should not be the first to learn that.
        std::fs::create_dir_all(&self.output).map_err(|error| {
            Failure::new("not_written", format!("{}: {error}", self.output.display()))
                .remedy("name a folder that can be written with --output")
        })?;
        Ok((SocketAddr::new(address, self.port), options))
    }
}
