//! What is kept beside the result of a test: which packets it lost, or its samples. It is kept here as files by day, if this site is told to, and goes
//! to the coordinator, if that keeps such files.

use std::fs::File;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::result::{FILE_BYTES_MOST, FileKind, TestFile};
use longhaul_report::parquet::write_losses;

use super::shared::Shared;
use super::testing::{Beside, Found, Head};
use crate::coordinator::now;
use crate::error::Failure;
use crate::store::Kept;

/// A test that is done.
pub(super) struct Done {
    pub(super) result: Kept,
    /// What goes to the coordinator beside the result.
    pub(super) file: Option<TestFile>,
}

impl From<Kept> for Done {
    fn from(result: Kept) -> Self {
        Self { result, file: None }
    }
}

/// Makes the result of a test, and keeps what belongs beside it.
pub(super) fn keep_beside(shared: &Shared, mut found: Found, head: Head) -> Result<Done, Failure> {
    let beside = found.take_beside();
    let mut done = Done::from(found.into_result(head)?);
    let (kind, content) = match beside {
        Beside::Losses(runs) if !runs.is_empty() && shared.wants(FileKind::Losses) => {
            let mut content = Vec::new();
            let written = write_losses(&mut content, runs.into_iter()).map_err(Failure::new);
            (FileKind::Losses, written.map(|()| content))
        }
        Beside::Samples(samples) => (FileKind::Samples, samples.read().map_err(Failure::new)),
        _ => return Ok(done),
    };
    let kept = content.and_then(|content| {
        done.file = to_deliver(shared, kind, &done.result, &content);
        keep_here(shared, kind, &done.result, &content)
    });
    if let Err(failure) = kept {
        stderr_line!("{}: {failure}", kind.name());
    }
    Ok(done)
}

fn keep_here(shared: &Shared, kind: FileKind, result: &Kept, content: &[u8]) -> Result<(), Failure> {
    let Some(files) = shared.files(kind) else { return Ok(()) };
    let (id, at_ns) = match result {
        Kept::Udp(test) => (&test.id, test.at_ns),
        Kept::Measurement(one) => (&one.id, one.at_ns),
    };
    files.keep((id, at_ns), now(), |mut file: &File| file.write_all(content))?.map_err(|no_room| no_room.0)
}

/// The file as the coordinator gets it, if that keeps such files.
fn to_deliver(shared: &Shared, of: FileKind, result: &Kept, content: &[u8]) -> Option<TestFile> {
    if !shared.kinds().contains(&of) {
        return None;
    }
    if content.len() > FILE_BYTES_MOST {
        stderr_line!("{} of a test have {} bytes: too many for the coordinator", of.name(), content.len());
        return None;
    }
    let (id, test, sender, receiver, at_ns) = match result {
        Kept::Udp(one) => (&one.id, &one.test, &one.sender, &one.receiver, one.at_ns),
        Kept::Measurement(one) => (&one.id, &one.test, &one.sender, &one.receiver, one.at_ns),
    };
    let [id, test, sender, receiver] = [id, test, sender, receiver].map(String::clone);
    Some(TestFile { of, id, test, sender, receiver, at_ns, content: STANDARD.encode(content) })
}
