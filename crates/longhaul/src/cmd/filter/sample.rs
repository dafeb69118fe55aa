//! Rejected frames in a file: pcapng, with the reason as each packet's comment.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use longhaul_bpf::filter::{SAMPLE_SNIPPET_BYTES, Samples};
use longhaul_captures::pcapng::{Interface, Writer};
use longhaul_captures::record::{InterfaceDirection, LinkType, Record};
use longhaul_kernel::clock::{RealtimeOffset, realtime_offset};
use longhaul_kernel::new_file::NamedFile;
use longhaul_units::Nanos;

use crate::output::Failure;
use crate::output::overwrite::{Overwrite, there_already};

/// A file for samples.
pub(crate) struct SampleFile {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    clock: RealtimeOffset,
}

impl SampleFile {
    /// Begins the file at `path`; one that is there is replaced only by `force`.
    pub(crate) fn create(path: &Path, interface: &str, force: bool) -> Result<Self, Failure> {
        let failed = |error: io::Error| not_written(path, &error);
        if path.is_file() && !force {
            return Err(there_already(path, "the file is there already"));
        }
        let begin = || {
            let new = NamedFile::at(path)?.begin()?;
            let mut described = Interface::default();
            described.name = Some(interface.into());
            described.snap_len = SAMPLE_SNIPPET_BYTES as u32;
            let mut writer = Writer::new(BufWriter::new(new.file().try_clone()?), "longhaul filter", &[described])?;
            // Whoever looks at it meanwhile finds a file that is one.
            writer.flush()?;
            Overwrite::by(force).finish(new).map(|()| writer)
        };
        let writer = begin().map_err(failed)?;
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
        let Self { path, mut writer, .. } = self;
        writer.flush().map_err(|error| not_written(&path, &error))
    }
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new("sample_not_written", format!("--sample {}: {error}", path.display()))
}
