//! `longhaul convert`.

use std::path::PathBuf;
use std::process::ExitCode;

use longhaul_captures::header_log::WriterOptions;
use longhaul_kernel::clock::monotonic;
use longhaul_result::Caveat;
use longhaul_units::Bytes;
use serde_json::json;

use crate::captures::input::{Inputs, Told};
use crate::captures::output::{Form, Output, form_of};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Turn captures into header logs (Parquet), pcap and pcapng, and back
///
/// Reads spools of `longhaul capture`, header logs, pcap and pcapng (also compressed by gzip or zstd), several merged by time. The
/// output's name says what it is to be: .parquet, .pcap, .pcapng, the latter two with .gz or .zst behind.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul convert trace trace.parquet\n  longhaul convert a.pcap.gz b.pcapng both.pcapng.zst"
)]
pub(crate) struct Args {
    /// Folders and files to read, then the file to write
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// Keep the captured bytes in a header log, so that a pcap can be made of it
    #[arg(long)]
    keep_heads: bool,
    /// How hard zstd tries for a header log
    #[arg(long, value_name = "1-22", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let Some((to, from)) = args.files.split_last() else {
        return Err(Failure::usage("name files to read and one to write"));
    };
    if args.keep_heads && form_of(to)? != Form::Parquet {
        return Err(Failure::usage("--keep-heads: only a header log leaves them out"));
    }
    let began = monotonic();
    let mut inputs = Inputs::open(from, true)?;
    let options = WriterOptions { heads: args.keep_heads, zstd_level: args.level };
    let mut output = Output::create(to, &inputs.interfaces(), options)?;
    let mut packets = 0_u64;
    inputs.for_each(|item| {
        packets += 1;
        output.write(item)
    })?;
    let told = inputs.told();
    let bytes = output.finish(&told)?;
    let duration = monotonic().saturating_sub(began);

    let caveats = caveats(&told);
    let rate = packets as f64 / duration.as_secs_f64().max(1e-9);
    if args.json {
        let parameters = json!({ "from": from, "to": to, "keep_heads": args.keep_heads });
        let result = json!({
            "packets": packets, "bytes": bytes, "duration_ns": duration.0, "seen_packets": told.ledger.seen_packets,
            "dropped_packets": told.ledger.dropped(), "gaps": told.ledger.gaps.len(), "marks": told.marks,
            "was_cut": told.was_cut, "late_packets": told.late_packets,
        });
        print_json(&Envelope::new("longhaul.convert/1", started_at, parameters, result, caveats.clone()));
    } else {
        let size = Bytes(bytes).rounded();
        print_text(&format!("{packets} packets into {} ({size}), {rate:.0} packets/s\n", to.display()));
    }
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

fn caveats(told: &Told) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut warn = |code: &str, message: String, remedy: &str| {
        caveats.push(Caveat { code: code.into(), message, remedy: remedy.into() });
    };
    if told.was_cut {
        warn(
            "was_cut",
            "a file was not closed: its capture was killed or still runs".into(),
            "up to a second is missing",
        );
    }
    if told.ledger.dropped() > 0 {
        let message = format!("the capture dropped {} of {} packets", told.ledger.dropped(), told.ledger.seen_packets);
        warn("packets_dropped", message, "");
    }
    if let Some((code, message, remedy)) = told.missing_parts_caveat() {
        warn(code, message, remedy);
    }
    if told.late_packets > 0 {
        warn("not_sorted", format!("{} packets stand after later ones", told.late_packets), "sort by frame_time_ns");
    }
    caveats
}
