//! `longhaul convert`.

use crate::caveats;
use crate::output::overwrite::Overwrite;
use std::fs::File;
use std::io::{ErrorKind, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use longhaul_captures::header_log::WriterOptions;
use longhaul_captures::reader::CaptureAccount;
use longhaul_captures::spool::Mark;
use longhaul_captures::writer::{CaptureWriter, Form, WriteError};
use longhaul_kernel::clock::monotonic;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::Bytes;
use serde::Serialize;

use crate::captures::source::open_captures;
use crate::captures::{missing_parts, unsupported_links};
use crate::output::{Envelope, Failure, Outcome, OutputFile, print_caveats, print_result, say};

/// Turn captures into header logs (Parquet), pcap and pcapng, and back
///
/// Reads spools of `longhaul capture`, header logs, pcap and pcapng (also compressed by gzip or zstd), several merged by time. The
/// name of the output selects its format: .parquet, .pcap or .pcapng, the latter two also with .gz or .zst. `-` reads stdin, or writes pcapng to stdout.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul convert monday monday.parquet\n  longhaul convert a.pcap.gz b.pcapng both.pcapng.zst\n  tcpdump -i eth0 -w - | longhaul convert - monday.parquet"
)]
pub(crate) struct Args {
    /// Read these folders and files; write the last file
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// Keep the header snippets in a header log, so that it can be converted to pcap
    #[arg(long)]
    keep_snippets: bool,
    /// Compress a header log with this zstd level
    #[arg(long, value_name = "1-22", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters<'a> {
    /// What was read.
    from: &'a [PathBuf],
    /// What was written.
    to: &'a Path,
    /// Captured bytes were kept in a header log.
    keep_snippets: bool,
}

/// What was converted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Converted<'a> {
    /// Packets written.
    packets: u64,
    /// Length of the file.
    bytes: u64,
    /// How long it took.
    duration_ns: u64,
    /// Packets that passed, by the captures' account; 0 where there is none.
    seen_packets: u64,
    /// Of those, how many the captures dropped.
    dropped_packets: u64,
    /// How many gaps they left.
    gaps: usize,
    /// Moments that were marked by SIGUSR1.
    marks: &'a [Mark],
    /// A file ends without having been closed.
    was_cut: bool,
    /// Packets that come after a later one in the files.
    late_packets: u64,
}

pub(crate) fn run(args: Args) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let Some((to, from)) = args.files.split_last() else {
        return Err(Failure::usage("give the files to read, then the file to write"));
    };
    if args.keep_snippets && form_of(to)? != Form::Parquet {
        return Err(Failure::usage(
            "--keep-snippets applies to header logs only: name an output that ends in .parquet",
        ));
    }
    args.overwrite.file(Some(to))?;
    let began = monotonic();
    let options = WriterOptions { snippets: args.keep_snippets, zstd_level: args.level };
    let Written { packets, bytes, account } = write_capture(from, &OutputFile::named(to)?, options, args.overwrite)?;
    let duration = monotonic().saturating_sub(began);

    let rate = packets as f64 / duration.as_secs_f64().max(1e-9);
    let parameters = Parameters { from, to, keep_snippets: args.keep_snippets };
    let result = Converted {
        packets,
        bytes,
        duration_ns: duration.0,
        seen_packets: account.ledger.seen_packets,
        dropped_packets: account.ledger.dropped(),
        gaps: account.ledger.gaps.len(),
        marks: &account.marks,
        was_cut: account.was_cut,
        late_packets: account.late_packets,
    };
    let envelope = Envelope::new("longhaul.convert/1", started_at, parameters, result, caveats(&account));
    if is_standard(to) {
        // Stdout is the capture.
        say(format_args!("{packets} packets written"));
        print_caveats(&envelope.caveats);
        return Ok(ExitCode::SUCCESS);
    }
    print_result(&envelope, args.json, |_| {
        let size = Bytes(bytes).rounded();
        format!("{packets} packets into {} ({size}), {rate:.0} packets/s\n", to.display())
    });
    Ok(ExitCode::SUCCESS)
}

/// A capture that was written.
pub(crate) struct Written {
    pub(crate) packets: u64,
    /// Length of the file; 0 on stdout.
    pub(crate) bytes: u64,
    pub(crate) account: CaptureAccount,
}

/// Writes the captures `from` into one at `to`, by its name; `-` is stdout, as pcapng. A file that took the name meanwhile is replaced where
/// `overwrite` says so.
pub(crate) fn write_capture(
    from: &[PathBuf],
    to: &OutputFile,
    options: WriterOptions,
    overwrite: Overwrite,
) -> Result<Written, Failure> {
    form_of(to)?;
    let mut captures = open_captures(from, true)?;
    let failed = |error: std::io::Error| Failure::from(WriteError::Io(to.to_path_buf(), error));
    let (new, file, named) = if is_standard(to) {
        (None, File::from(standard_output()?), Path::new(STDOUT_FORM))
    } else {
        let new = to.begin()?;
        let file = new.file().try_clone().map_err(failed)?;
        (Some(new), file, &**to)
    };
    let mut output = CaptureWriter::begin(named, file, &captures.interfaces(), options)?;
    let mut packets = 0_u64;
    captures.for_each(|item| {
        packets += 1;
        output.write(item).map_err(Failure::from)
    })?;
    let account = captures.account();
    output.finish(&account)?;
    let mut bytes = 0;
    if let Some(new) = new {
        bytes = new.file().metadata().map_err(failed)?.len();
        overwrite.finish_or_keep(new).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::unwritable(to, error),
            _ => failed(error),
        })?;
    }
    Ok(Written { packets, bytes, account })
}

/// A name that asks for the form of what goes to stdout.
const STDOUT_FORM: &str = "stdout.pcapng";

/// Whether `path` is `-`: standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Stdout, to be written without a lock.
pub(crate) fn standard_output() -> Result<OwnedFd, Failure> {
    stdout().as_fd().try_clone_to_owned().map_err(|error| Failure::unwritable(Path::new("stdout"), error))
}

fn form_of(path: &Path) -> Result<Form, WriteError> {
    Form::of(if is_standard(path) { Path::new(STDOUT_FORM) } else { path })
}

fn caveats(account: &CaptureAccount) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let mut warn = |code: CaveatCode, message: String, remedy: &str| {
        caveats.push(Caveat::new(code, message, remedy));
    };
    if account.was_cut {
        warn(
            caveats::CAPTURE_CUT,
            "a file was not closed: its capture was killed or still runs".into(),
            "up to a second is missing",
        );
    }
    if account.ledger.dropped() > 0 {
        let message =
            format!("the capture dropped {} of {} packets", account.ledger.dropped(), account.ledger.seen_packets);
        warn(caveats::CAPTURE_DROPPED, message, "");
    }
    if account.late_packets > 0 {
        warn(
            caveats::CAPTURE_NOT_SORTED,
            format!("{} packets have an earlier time than the one before", account.late_packets),
            "sort by frame_time_ns",
        );
    }
    caveats.extend(missing_parts(account));
    caveats.extend(unsupported_links(account));
    caveats
}

#[cfg(test)]
mod tests {
    use longhaul_captures::ledger::{DroppedAt, Ledger};

    use super::*;

    #[test]
    fn doubts_about_a_capture_have_the_codes_of_those_who_analyse_it() {
        let ledger = Ledger { seen_packets: 9, dropped_packets: [(DroppedAt::Disk, 4)].into(), ..Ledger::default() };
        let account = CaptureAccount { ledger, was_cut: true, late_packets: 2, ..CaptureAccount::default() };
        let found = caveats(&account);
        let codes: Vec<&str> = found.iter().map(|caveat| caveat.code.as_str()).collect();
        assert_eq!(codes, ["capture_cut", "capture_dropped", "capture_not_sorted"]);
    }
}
