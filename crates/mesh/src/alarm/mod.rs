//! Alarms while the coordinator runs: judged again as results arrive, shown on the page, and told once each to a program and a web address.
//!
//! What is an alarm is decided in `longhaul-mesh-model`; this judges the results of the last days from the beginning each time, as
//! `longhaul mesh status` does, so that results which arrive late count at their own time.

mod command;
mod named;
mod told;
mod webhook;

pub(crate) use named::Alarm;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::coordinator::{mesh, now_ns};
use crate::error::Failure;
use crate::folder::Folder;
use crate::shown;
use crate::store::{Archive, Reader};
use told::Told;

/// How often the store is asked whether there is something new.
const TICK: Duration = Duration::from_secs(1);
/// Alarms are judged once in this time at most, and in a twentieth of all time at most: a large mesh takes seconds.
const JUDGED_EVERY: Duration = Duration::from_secs(5);
const REST: u32 = 20;
const HOUR_NS: u64 = 3_600_000_000_000;

/// Whom alarms are told.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Alarms of the coordinator")]
pub(crate) struct AlarmOptions {
    /// Run this program for each alarm, once; the alarm is JSON on its standard input
    #[arg(long, value_name = "PROGRAM", requires = "coordinator")]
    pub(crate) on_alarm: Option<PathBuf>,
    /// POST each alarm to this address, once, as JSON
    #[arg(long, value_name = "URL", requires = "coordinator", value_parser = webhook::address)]
    pub(crate) webhook: Option<String>,
}

/// Alarms that are open, as they were last judged.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Judged>);

/// What was judged, and when.
#[derive(Debug, Default, Clone)]
pub(crate) struct Judged {
    pub(crate) alarms: Vec<Alarm>,
    /// Nanoseconds since 1970; 0: not yet.
    pub(crate) at_ns: i64,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Judged> {
        // Each of its steps is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As they were last judged.
    pub(crate) fn judged(&self) -> Judged {
        self.lock().clone()
    }
}

/// Watches for alarms, for ever, in a thread.
///
/// # Errors
/// Where the store cannot be opened.
pub(crate) fn start(folder: &Folder, options: &AlarmOptions) -> Result<Arc<Watched>, Failure> {
    let watched = Arc::new(Watched::default());
    // It makes the tables that others read.
    let archive = Archive::open(folder.store()?)?;
    let watch = Watch {
        folder: folder.clone(),
        options: options.clone(),
        watched: Arc::clone(&watched),
        told: Told::load(folder),
        archive,
    };
    thread::Builder::new().name("alarms".into()).spawn(move || watch.run()).map_err(Failure::new)?;
    Ok(watched)
}

struct Watch {
    folder: Folder,
    options: AlarmOptions,
    watched: Arc<Watched>,
    told: Told,
    archive: Archive,
}

impl Watch {
    fn run(mut self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return eprintln!("alarms: {error}"),
        };
        let opened = self.folder.store().and_then(|store| Ok(runtime.block_on(Reader::open(store))?));
        let reader = match opened {
            Ok(reader) => reader,
            Err(failure) => return eprintln!("alarms: {failure}"),
        };
        let mut last = None;
        let mut next = Instant::now();
        let mut failed = String::new();
        loop {
            let state = runtime.block_on(reader.newest()).ok().map(|newest| (newest, now_ns() / HOUR_NS));
            if state.is_some() && state != last && Instant::now() >= next {
                let begin = Instant::now();
                let done = self.judge();
                next = Instant::now() + JUDGED_EVERY.max(begin.elapsed() * REST);
                if done.is_ok() {
                    last = state;
                }
                say_once(&mut failed, done);
            }
            let alarms = self.watched.judged().alarms;
            say_once(&mut failed, self.told.tell(&self.folder, &self.options, &alarms));
            thread::sleep(TICK);
        }
    }

    fn judge(&mut self) -> Result<(), Failure> {
        let (_, mesh) = mesh(&self.folder)?;
        let open = shown::open_alarms(&mesh, &mut self.archive)?;
        let alarms: Vec<Alarm> = open.iter().map(|alarm| Alarm::new(&mesh, alarm)).collect();
        self.told.open(&self.folder, &alarms)?;
        *self.watched.lock() = Judged { alarms, at_ns: i64::try_from(now_ns()).unwrap_or(i64::MAX) };
        Ok(())
    }
}

/// Says what fails when it begins to, not each second again.
fn say_once(last: &mut String, done: Result<(), Failure>) {
    if let Err(failure) = done {
        let text = failure.to_string();
        if text != *last {
            eprintln!("alarms: {text}");
        }
        *last = text;
    }
}
