//! The page without a socket: the bytes of a question in, the bytes of the answer out. What tests ask that no network shall slow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::login::Login;
use super::{router, serving};
use crate::alarm::Watched;
use crate::error::Failure;
use crate::folder::Folder;
use crate::store::{Archive, Series};

/// Bytes on their way between the two ends.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes of an answer that are read at most.
const ANSWER_BYTES_MOST: u64 = 64 << 20;
/// An end that says nothing more is given up, as by a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// What answers for a coordinator's folder, as its port does.
#[derive(Debug)]
pub struct InProcess {
    runtime: Runtime,
    router: Router,
    series: Series,
}

impl InProcess {
    /// Opens a folder that `longhaul mesh init` has made; `is_public`: everybody may read.
    ///
    /// # Errors
    /// Where the folder cannot be used, in words.
    pub fn open(folder: &Path, is_public: bool) -> Result<Self, String> {
        Self::of(&Folder::new(folder), is_public).map_err(|failure| failure.to_string())
    }

    fn of(folder: &Folder, is_public: bool) -> Result<Self, Failure> {
        // It makes the tables that others read.
        drop(Archive::open(&folder.file("archive"))?);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let login = Login::new(folder, is_public, false)?;
        let (router, series) = runtime.block_on(router(folder, login, &Arc::new(Watched::default())))?;
        Ok(Self { runtime, router, series })
    }

    /// Takes all results into the figures of pairs.
    ///
    /// # Errors
    /// Where the store cannot be written, in words.
    pub fn follow(&self) -> Result<(), String> {
        while self.runtime.block_on(self.series.follow()).map_err(|error| error.to_string())? {}
        Ok(())
    }

    /// Sends `questions` over one connection, says that nothing more comes, and reads to the end: HTTP/1.1, one answer after another.
    pub fn answer(&self, questions: &[u8]) -> Vec<u8> {
        let (here, there) = tokio::io::duplex(PIPE_BYTES);
        let mut answers = Vec::new();
        self.runtime.block_on(async {
            let (from, mut to) = tokio::io::split(here);
            let ask = async {
                // It may end the connection before it has read all.
                let _ = to.write_all(questions).await;
                let _ = to.shutdown().await;
            };
            let read = async { from.take(ANSWER_BYTES_MOST).read_to_end(&mut answers).await };
            let all = async { tokio::join!(serving::answer(there, self.router.clone()), ask, read) };
            let _ = timeout(PATIENCE, all).await;
        });
        answers
    }
}
