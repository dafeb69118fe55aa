//! `serve --prometheus`: what the server does now, and how its tests ended.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::scope;
use std::time::Duration;

use longhaul_kernel::signals::Stop;
use longhaul_peer::server::{Ended, Server};
use serde::Serialize;

use crate::output::live::Stamp;
use crate::output::prometheus::Textfile;

/// The file is at most this old.
const INTERVAL: Duration = Duration::from_secs(1);
/// Different codes of failures that are counted apart: a client can send any.
const CODES_MOST: usize = 32;
/// What all further codes are counted as.
const OTHER: &str = "other";

/// The file, and what goes into it.
#[derive(Debug)]
pub(super) struct Metrics {
    file: Textfile,
    done_tests: u64,
    failed_tests: BTreeMap<String, u64>,
}

/// One interval.
#[derive(Serialize)]
struct Interval {
    schema: &'static str,
    #[serde(flatten)]
    stamp: Stamp,
    running_tests: usize,
    waiting_clients: usize,
    /// Since the start.
    done_tests: u64,
    /// Since the start: connections that ended without a test's result.
    failed: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    code: String,
    tests: u64,
}

impl Metrics {
    pub(super) fn new(file: Textfile) -> Self {
        Self { file, done_tests: 0, failed_tests: BTreeMap::new() }
    }

    /// Runs `server` as [`Server::run`] does, and writes the file every second.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub(super) fn run(
        mut self,
        server: &Server,
        stop: Option<Stop>,
        once: bool,
        log: impl Fn(&Ended) + Send + Sync + 'static,
    ) -> io::Result<()> {
        // A session may outlive the server by a moment, and holds its sender: the end is a message, too.
        let (sender, ends) = channel();
        let over = sender.clone();
        scope(|scope| {
            scope.spawn(move || self.keep(server, &ends));
            let served = server.run(stop, once, move |ended| {
                log(ended);
                let _ = sender.send(Some(ended.result.as_ref().map(|_| ()).map_err(|error| error.code.to_string())));
            });
            let _ = over.send(None);
            served
        })
    }

    /// Writes the file until the server has ended.
    fn keep(&mut self, server: &Server, ends: &Receiver<Option<Result<(), String>>>) {
        loop {
            let (running_tests, waiting_clients) = server.load();
            let failed =
                self.failed_tests.iter().map(|(code, tests)| Failed { code: code.clone(), tests: *tests }).collect();
            self.file.write(&Interval {
                schema: "longhaul.serve.interval/1",
                stamp: Stamp::now(),
                running_tests,
                waiting_clients,
                done_tests: self.done_tests,
                failed,
            });
            match ends.recv_timeout(INTERVAL) {
                Ok(Some(Ok(()))) => self.done_tests += 1,
                Ok(Some(Err(code))) => self.failed(code),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn failed(&mut self, code: String) {
        let is_new = !self.failed_tests.contains_key(&code);
        let code = if is_new && self.failed_tests.len() >= CODES_MOST { OTHER.to_owned() } else { code };
        *self.failed_tests.entry(code).or_default() += 1;
    }
}
