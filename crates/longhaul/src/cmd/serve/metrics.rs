//! `serve --prometheus`: what the server does now, and how its tests ended.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use longhaul_kernel::signals::Stop;
use longhaul_peer::server::{Ended, Server};
use parking_lot::Mutex;
use serde::Serialize;

use crate::output::live::Stamp;
use crate::output::prometheus::Textfile;

/// Different codes of failures that are counted apart: a client can send any.
const CODES_MOST: usize = 32;
/// What all further codes are counted as.
const OTHER: &str = "other";

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

/// Runs `server` as [`Server::run`] does, and keeps `file`.
///
/// # Errors
/// As [`Server::run`].
pub(super) fn run(
    file: Textfile,
    server: &Server,
    stop: Option<Stop>,
    once: bool,
    log: impl Fn(&Ended) + Send + Sync + 'static,
) -> io::Result<()> {
    // A session may outlive the server by a moment, and counts on.
    let counts = Arc::new(Mutex::new(Counts::default()));
    let counted = Arc::clone(&counts);
    let interval = move || {
        let (running_tests, waiting_clients) = server.load();
        let (done_tests, failed) = counted.lock().told();
        let (schema, stamp) = ("longhaul.serve.interval/1", Stamp::now());
        vec![Interval { schema, stamp, running_tests, waiting_clients, done_tests, failed }]
    };
    file.keep(interval, || {
        server.run(stop, once, move |ended| {
            log(ended);
            counts.lock().count(ended.result.as_ref().err().map(|error| error.code.as_str()));
        })
    })
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
