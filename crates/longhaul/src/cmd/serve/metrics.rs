//! `serve --prometheus`: what the server does now, and how its tests ended.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::scope;
use std::time::Duration;

use longhaul_kernel::signals::Stop;
use longhaul_peer::server::{Ended, Server};
use parking_lot::Mutex;
use serde::Serialize;

use crate::output::live::Stamp;
use crate::output::prometheus::Textfile;

/// The file is at most this old.
const INTERVAL: Duration = Duration::from_secs(1);
/// Different codes of failures that are counted apart: a client can send any.
const CODES_MOST: usize = 32;
/// What all further codes are counted as.
const OTHER: &str = "other";

/// The file.
#[derive(Debug)]
pub(super) struct Metrics(Textfile);

/// How connections ended, since the start. Strangers can make any number of them end.
#[derive(Debug, Default)]
struct Counts {
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
        Self(file)
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
        // A session may outlive the server by a moment, and counts on.
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (end, over) = channel();
        scope(|scope| {
            let counted = Arc::clone(&counts);
            scope.spawn(move || self.keep(server, &counted, &over));
            let served = server.run(stop, once, move |ended| {
                log(ended);
                counts.lock().count(ended.result.as_ref().err().map(|error| error.code.as_str()));
            });
            drop(end);
            served
        })
    }

    /// Writes the file until the server has ended.
    fn keep(&mut self, server: &Server, counts: &Mutex<Counts>, over: &Receiver<()>) {
        loop {
            let (running_tests, waiting_clients) = server.load();
            let (done_tests, failed) = counts.lock().told();
            self.0.write(&Interval {
                schema: "longhaul.serve.interval/1",
                stamp: Stamp::now(),
                running_tests,
                waiting_clients,
                done_tests,
                failed,
            });
            if over.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

impl Counts {
    /// A connection ended, with this code where it failed.
    fn count(&mut self, failed: Option<&str>) {
        let Some(code) = failed else {
            self.done_tests += 1;
            return;
        };
        let is_new = !self.failed_tests.contains_key(code);
        let code = if is_new && self.failed_tests.len() >= CODES_MOST { OTHER } else { code };
        *self.failed_tests.entry(code.to_owned()).or_default() += 1;
    }

    fn told(&self) -> (u64, Vec<Failed>) {
        let failed = self.failed_tests.iter().map(|(code, tests)| Failed { code: code.clone(), tests: *tests });
        (self.done_tests, failed.collect())
    }
}
