//! `longhaul rtt --resume`: a measurement that ended, or was killed, goes on in its folder.

use std::path::Path;

use longhaul_kernel::clock::realtime;
use longhaul_kernel::signals::StopSignal;
use longhaul_rtt::probe_log::{About, ProbeLogError, next_segment};
use longhaul_rtt::{Gap, GapReason, RttParameters};
use longhaul_terms::Amount;

use crate::captures::holes::open_probe_log;
use crate::cmd::rtt::live::Live;
use crate::cmd::rtt::log::SegmentLog;
use crate::cmd::rtt::measured::Measured;
use crate::output::Failure;
use crate::output::saved::Folder;

/// What a log says of its measurement, to go on with.
pub(crate) fn about(folder: &Path, host: &str) -> Result<About, Failure> {
    let reader = open_probe_log(folder, |error| unreadable(&error))?;
    let about = reader.about().clone();
    if about.host != host {
        let message = format!("--resume {}: it measured {}, not {host}", folder.display(), about.host.escape_debug());
        return Err(Failure::usage(message));
    }
    Ok(About { gaps: Vec::new(), path_changes: Vec::new(), version: env!("CARGO_PKG_VERSION").into(), ..about })
}

/// The parameters of that measurement.
pub(crate) fn parameters(about: &About, amount: Amount) -> RttParameters {
    RttParameters {
        amount,
        interval_ns: about.interval_ns,
        poisson: about.poisson,
        payload_bytes: about.payload_bytes,
        sizes: about.sizes.clone(),
        timeout_ns: about.timeout_ns,
        nic_stamps: false,
        first_sequence: 0,
    }
}

/// Reads what was measured so far in `folder`, which the user calls `name`, until `stopped` has a signal. The pause since then is a gap. Returns the
/// parameters with the number of the next probe.
pub(crate) fn measured(
    name: &Path,
    folder: &Folder,
    about: About,
    asked: RttParameters,
    live: Live,
    stopped: impl Fn() -> Option<StopSignal>,
) -> Result<(Measured, RttParameters), Failure> {
    let mut measured = Measured::new(about.kind, &asked, None, live);
    read(name, &mut measured, stopped)?;
    let number = next_segment(name).map_err(|error| unreadable(&error))?;
    measured.log = Some(SegmentLog::at(folder.clone(), about, number));
    let now_ns = i64::try_from(realtime().0).unwrap_or(i64::MAX);
    let from_ns = measured.last_ns.unwrap_or(now_ns);
    measured.gap(Gap { why: GapReason::Paused, from_ns, to_ns: now_ns, step_ns: 0, left_out: 0 });
    let asked = RttParameters { first_sequence: measured.next, ..asked };
    Ok((measured, asked))
}

fn read(name: &Path, measured: &mut Measured, stopped: impl Fn() -> Option<StopSignal>) -> Result<(), Failure> {
    let unreadable = |error: ProbeLogError| unreadable(&error);
    let mut reader = open_probe_log(name, unreadable)?;
    while let Some(row) = reader.next().transpose().map_err(unreadable)? {
        if let Some(signal) = stopped() {
            return Err(Failure::interrupted_reading(name, signal));
        }
        // A gap lies before the first row of the segment that tells of it.
        reader.take_gaps().iter().for_each(|gap| measured.statistics.gap(gap));
        reader.take_path_changes().into_iter().for_each(|change| measured.statistics.path_change(change));
        measured.statistics.take(&row);
        (measured.next, measured.last_ns) = (row.sequence + 1, Some(row.sent_ns));
    }
    Ok(())
}

fn unreadable(error: &ProbeLogError) -> Failure {
    Failure::new("unreadable", error).remedy("give the folder of longhaul rtt -o; move a damaged segment away")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use longhaul_rtt::probe_log::{ProbeRow, SCHEMA, segment_name, write_segment};

    use super::*;
    use crate::output::live::{Lines, Show};

    /// A week of probes takes a while to read.
    #[test]
    fn a_stop_while_the_log_is_read_ends_that() {
        let folder = std::env::temp_dir().join(format!("longhaul-rtt-stopped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let about = About { schema: SCHEMA.into(), ..About::default() };
        let rows = [0, 1].map(|sequence| ProbeRow { sequence, ..ProbeRow::default() });
        write_segment(File::create(folder.join(segment_name(0))).unwrap(), &about, &rows).unwrap();
        let read = |stopped: Option<StopSignal>| {
            let asked = parameters(&about, Amount::Packets(1));
            let mut measured = Measured::new(about.kind, &asked, None, Live::new(Lines::new(Show::Nothing)));
            let failure = super::read(&folder, &mut measured, || stopped).err();
            (failure.map(|failure| failure.message().to_owned()), measured.next)
        };
        let (failure, next) = read(Some(StopSignal::Terminate));
        assert!(failure.is_some_and(|why| why.contains("interrupted while it was read")));
        assert_eq!(next, 0);
        assert_eq!(read(None), (None, 2));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// What rows a log may have follows from the lengths of its segments, whatever else is in the folder.
    #[test]
    fn a_log_of_holes_is_refused() {
        let folder = std::env::temp_dir().join(format!("longhaul-rtt-holes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        File::create(folder.join("a.spool")).unwrap();
        File::create(folder.join(segment_name(0))).unwrap().set_len(1 << 40).unwrap();
        let refused = super::about(&folder, "far").unwrap_err();
        assert!(refused.message().contains("probes-00000.parquet: it is mostly holes"), "{refused:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
