//! Rejected frames in a file: pcapng, with the reason as each packet's comment.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longhaul_bpf::filter::{SAMPLE_SNIPPET_BYTES, Samples};
use longhaul_captures::pcapng::{Interface, Writer};
use longhaul_captures::record::{InterfaceDirection, LinkType, Record};
use longhaul_kernel::clock::{RealtimeOffset, realtime_offset};
use longhaul_kernel::links::followed;
use longhaul_units::Nanos;
use rustix::fs::OFlags;

use crate::output::Failure;
use crate::output::overwrite::there_already;

/// A file for samples.
pub(crate) struct SampleFile {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    clock: RealtimeOffset,
}

/// Begins a file, or one anew. A link that is there by now is of another user, and not followed.
fn create(path: &Path) -> io::Result<File> {
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(no_link).open(path)
}

impl SampleFile {
    /// Begins the file at `path`; one that is there is replaced only by `force`.
    pub(crate) fn create(path: &Path, interface: &str, force: bool) -> Result<Self, Failure> {
        let failed = |error| not_written(path, &error);
        if path.is_file() && !force {
            return Err(there_already(path, "the file is there already"));
        }
        let file = followed(path).and_then(|path| create(&path)).map_err(failed)?;
        let mut described = Interface::default();
        described.name = Some(interface.into());
        described.snap_len = SAMPLE_SNIPPET_BYTES as u32;
        let writer = Writer::new(BufWriter::new(file), "longhaul filter", &[described]).map_err(failed)?;
        Ok(Self { path: path.into(), writer, clock: realtime_offset() })
    }

    /// Writes the samples that wait.
    pub(crate) fn take(&mut self, samples: &mut Samples) -> Result<(), Failure> {
        let mut written = Ok(());
        samples.drain(|sample| {
            if written.is_err() {
                return;
            }
            let record = Record {
                at_ns: self.clock.realtime_of(Nanos(sample.at_ns)).0 as i64,
                interface: 0,
                direction: InterfaceDirection::Inbound,
                link: LinkType::Ethernet,
                frame_len: sample.frame_bytes,
                gso_segs: 0,
                gso_size: 0,
                snippet: &sample.snippet,
            };
            written = self.writer.write(&record, sample.reason.name());
        });
        written.map_err(|error| not_written(&self.path, &error))
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { path, writer, .. } = self;
        writer.into_inner().flush().map_err(|error| not_written(&path, &error))
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("sample_not_written", format!("--sample {}: {error}", path.display()))
}
