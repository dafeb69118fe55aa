//! `longhaul profile`.

mod captures;
pub(crate) mod measured;
mod of_tcp;
pub(crate) mod source;

use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_diagnosis::{Bottleneck, Diagnosed, about, bottleneck};
use longhaul_kernel::new_file::{NewFile, PUBLIC};
use longhaul_profile::{DelaySummary, LossLaw, Netem, Profile, ProfileOptions, SlowestQueue, Split};
use longhaul_report::saved::{Content, Saved};
use longhaul_terms::Directions;
use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::args::quantity::seconds;
use crate::cmd::profile::measured::Measured;
use crate::output::overwrite::Overwrite;
use crate::output::saved::{no_result, open_folder_at, read_result};
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_json, print_text};

/// The script of `--netem`.
const SCRIPT: &str = "netem.sh";
/// All files of `--netem`.
const NETEM_FILES: [&str; 3] = ["forward.dist", "backward.dist", SCRIPT];

/// Route changes that are printed.
const ROUTE_CHANGES_MOST: usize = 10;

const EXAMPLES: &str = "\
Example:
  longhaul profile far.txt -o far.toml                    # ping -i 0.01 -c 60000 far > far.txt
  longhaul profile near.pcap far.pcap -o far.toml         # captures of both ends: each direction
  longhaul profile tcp.pcap                               # one capture of TCP
  longhaul profile monday --diagnosis tuesday             # rate and queue of longhaul diagnose
  longhaul profile far.txt --netem far                    # for Linux's netem, too
  longhaul lab up --name far far.toml                     # that path on this machine
  longhaul lab exec --name far client -- COMMAND          # your program over it
  longhaul verify far.toml --against far.txt              # how similar the two are

The path file has the evidence of each value as a comment, and says what the measurement does not show.";

/// Create a path file from a measurement
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Read this measurement: the folder of longhaul rtt -o or tcp -o, the output of ping (- is standard input), a capture of TCP; or
    /// two captures, of the client's end of the path and of the server's
    #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
    measured: Vec<PathBuf>,
    /// Write the path into this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<OutputFile>,
    /// Give the path this name in its file [default: the name of the measurement]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Take this time between probes, if the output of ping does not show it
    #[arg(short, long, value_name = "TIME", value_parser = seconds)]
    interval: Option<Nanos>,
    /// Take rate and queue from this diagnosis: the folder of longhaul diagnose -o
    #[arg(long, value_name = "FILE|DIR")]
    diagnosis: Option<PathBuf>,
    /// Write the path for Linux's netem into this folder: a table of delay for each direction, a script of tc commands
    #[arg(long, value_name = "DIR")]
    netem: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Trust that both captures use one clock: one-way delays are then exact
    #[arg(long)]
    same_clock: bool,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The measurement, or captures of both ends.
    measured: Vec<String>,
    /// Time between probes that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ns: Option<u64>,
    /// Whether one clock stamped both ends.
    same_clock: bool,
    /// The diagnosis that rate and queue were taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnosis: Option<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    args.overwrite.file(args.output.as_deref())?;
    if let Some(folder) = &args.netem {
        NETEM_FILES.iter().try_for_each(|name| args.overwrite.file(Some(&folder.join(name))))?;
    }
    let measured = Measured::read(&args.measured, args.interval, args.same_clock)?;
    let options = ProfileOptions {
        name: args.name.clone().unwrap_or_else(|| measured.name.clone()),
        source: format!("longhaul profile of {}", measured.source),
        same_clock: args.same_clock,
        queues: args.diagnosis.as_deref().map_or_else(|| Ok(ProfileOptions::default().queues), queues)?,
    };
    let profile = Profile::of(&measured.probes, &options)
        .map_err(|error| Failure::new("no_path", format!("{}: {error}", args.measured[0].display())))?;
    if let Some(file) = &args.output {
        file.write(&profile.path_file, args.overwrite)?;
    }
    let netem = args.netem.as_deref().map(|folder| write_netem(folder, &profile, args.overwrite)).transpose()?;
    if args.json {
        let parameters = Parameters {
            measured: args.measured.iter().map(|path| path.display().to_string()).collect(),
            interval_ns: args.interval.map(|interval| interval.0),
            same_clock: args.same_clock,
            diagnosis: args.diagnosis.as_ref().map(|path| path.display().to_string()),
        };
        print_json(&Envelope::new("longhaul.profile/1", started_at, parameters, profile, Vec::new()));
    } else if let Some(file) = &args.output {
        print_text(&text(&profile));
        print_text(&format!("\nTry it: longhaul lab up {}\n", file.display()));
    } else if netem.is_none() {
        print_text(&profile.path_file);
    }
    if let (Some(folder), Some(netem)) = (&args.netem, netem.filter(|_| !args.json)) {
        print_text(&format!(
            "netem: {}, with the tables beside it. netem cannot express:\n",
            folder.join(SCRIPT).display()
        ));
        print_text(&netem.not_expressed.iter().map(|sentence| format!("- {sentence}\n")).collect::<String>());
    }
    Ok(ExitCode::SUCCESS)
}

fn write_netem(folder: &Path, profile: &Profile, overwrite: Overwrite) -> Result<Netem, Failure> {
    let netem = Netem::of(profile);
    let open = open_folder_at(folder).map_err(|error| Failure::unwritable(folder, error))?;
    let write = |name: &str, text: &str| {
        let write = || -> io::Result<()> {
            let new = NewFile::create(&open.path().join(name), PUBLIC)?;
            new.file().write_all(text.as_bytes())?;
            overwrite.finish_or_keep(new)
        };
        write().map_err(|error| Failure::unwritable(&folder.join(name), error))
    };
    for (name, table) in &netem.tables {
        write(&format!("{name}.dist"), table)?;
    }
    write(SCRIPT, &netem.script)?;
    Ok(netem)
}

/// The slowest queues of both directions, by a diagnosis.
fn queues(path: &Path) -> Result<[Result<SlowestQueue, String>; 2], Failure> {
    let (file, text) = read_result(path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    let Content::Diagnose(asked, results) = saved.content else {
        return Err(Failure::usage(format!("--diagnosis {}: not a result of longhaul diagnose", path.display())));
    };
    let of = |one: &Diagnosed| match bottleneck(&one.evidence, asked.address.ip().to_canonical().is_ipv6()) {
        Ok(found) => Ok(slowest_queue(&found)),
        Err(why) => Err(why.to_string()),
    };
    let other = || Err("the diagnosis was of the other direction (see longhaul diagnose --bidir)".to_owned());
    Ok(match &results {
        Directions::Both { forward, backward } => [of(forward), of(backward)],
        Directions::One(one) if asked.reverse => [other(), of(one)],
        Directions::One(one) => [of(one), other()],
    })
}

fn slowest_queue(found: &Bottleneck) -> SlowestQueue {
    let Bottleneck { rate_bps, waits_ns, sent_bps, received_bps } = *found;
    SlowestQueue {
        rate_bps,
        bytes: waits_ns.map(|ns| BitRate(rate_bps).bytes_in(Nanos(ns))),
        rate_evidence: format!("UDP: {} of payload sent, {} arrived", about(sent_bps), about(received_bps)),
        bytes_evidence: waits_ns.map_or_else(String::new, |ns| {
            format!("packets waited {:.2} ms longer above this rate than below", ns as f64 / 1e6)
        }),
    }
}

fn text(profile: &Profile) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} {} over {:.0} s, {} apart\n",
        profile.losses().iter().map(|fit| fit.sent_packets).sum::<u64>(),
        profile.packets(),
        profile.duration_ns as f64 / 1e9,
        Nanos(profile.interval_ns)
    );
    let _ = writeln!(text, "ms              min      p10   median      p90      p99      max   stddev");
    let way = |name: &str, way: &DelaySummary| {
        let values = [way.min_ns, way.p10_ns, way.p50_ns, way.p90_ns, way.p99_ns, way.max_ns, way.stddev_ns];
        let cells: String = values.iter().map(|ns| format!(" {:>8.3}", ns / 1e6)).collect();
        let over = match way.correlation {
            Some(found) if found.below_interval => "  changes faster than the probes see".to_owned(),
            Some(found) if found.time_ns < 100_000_000 => {
                format!("  changes over {:.3} ms", found.time_ns as f64 / 1e6)
            }
            Some(found) => format!("  changes over {:.3} s", found.time_ns as f64 / 1e9),
            None => String::new(),
        };
        format!("{name:<10}{cells}{over}\n")
    };
    text += &way("round trip", &profile.rtt);
    for (name, found) in [("forward", &profile.forward), ("backward", &profile.backward)] {
        text += &found.as_ref().map_or_else(String::new, |found| way(name, found));
    }
    let split = match profile.split {
        Split::OneClock => "each direction by one clock",
        Split::ShortestHalved => "the shortest delay is halved: a guess",
        Split::RoundTrips => "halved, all jitter in the forward direction: guesses",
    };
    let _ = writeln!(text, "\ndelay       {split}");
    for shift in &profile.delay_shifts {
        let _ = writeln!(text, "shift       {:+.3} ms at {:.2} s", shift.rtt_ns / 1e6, shift.at_ns as f64 / 1e9);
    }
    for change in profile.route_changes.iter().take(ROUTE_CHANGES_MOST) {
        let _ = writeln!(text, "route       changed {}", change.told());
    }
    let more = profile.route_changes.len().saturating_sub(ROUTE_CHANGES_MOST);
    if more > 0 {
        let _ = writeln!(text, "route       changed {more} times more");
    }
    for (fit, way) in profile.losses().into_iter().zip(["", " in the backward direction"]) {
        let _ = writeln!(text, "loss        {} of {}{way}: {}", fit.lost_packets, fit.sent_packets, loss(&fit.law));
        for outage in &fit.outages {
            let (at, lasting) = (outage.at_ns as f64 / 1e9, outage.lasting_ns as f64 / 1e9);
            let _ = writeln!(text, "outage      at {at:.2} s for {lasting:.2} s ({} packets)", outage.packets);
        }
    }
    for (name, queue) in [("forward", &profile.forward_queue), ("backward", &profile.backward_queue)] {
        if let Some(SlowestQueue { rate_bps, bytes, .. }) = queue {
            let holds = bytes.map_or_else(String::new, |bytes| format!(", its queue holds {bytes} bytes"));
            let _ = writeln!(text, "rate        {name} {} on the wire{holds}", about(*rate_bps));
        }
    }
    let _ = writeln!(text, "reordered   {}", profile.reordered_packets);
    let _ = writeln!(text, "duplicates  {}", profile.duplicate_packets);
    let _ = writeln!(text, "\nThe measurement does not say:");
    for sentence in &profile.not_known {
        let _ = writeln!(text, "- {sentence}");
    }
    text
}

fn loss(law: &LossLaw) -> String {
    match law {
        LossLaw::None { less_than } => format!("less than {:.4} % with 95 % confidence", less_than * 100.0),
        LossLaw::Random { interval: [least, most], .. } => {
            format!("independent, {:.4} to {:.4} % with 95 % confidence", least * 100.0, most * 100.0)
        }
        LossLaw::Bursts { lasting_ns, every_ns, lost, lost_interval, .. } => {
            let part = lost_interval.map_or(String::new(), |_| format!(", in which {:.0} % are lost", lost * 100.0));
            format!("in bursts of {:.1} ms, each {:.2} s on average{part}", lasting_ns / 1e6, every_ns / 1e9)
        }
    }
}
