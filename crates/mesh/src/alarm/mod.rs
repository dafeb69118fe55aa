//! Alarms while the coordinator runs: judged again as results arrive, shown on the page, told once each to a program and a web address, as are their
//! ends; and a site is asked for a diagnosis of each. What was judged and what came of it is in one place, `told.rs`.
//!
//! What is an alarm is decided in `longhaul-mesh-model`; `judging.rs` judges the results of the last days, for `longhaul mesh status` too, so
//! that results which arrive late count at their own time.

mod command;
mod named;
mod told;
mod webhook;

pub(crate) use named::Alarm;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_kernel::stderr_line;
use longhaul_mesh_model::place;

use crate::coordinator::{mesh, now, now_ns};
use crate::diagnoses;
use crate::error::Failure;
use crate::folder::Folder;
use crate::judging::Judging;
use crate::store::{Archive, DAY_NS, Reader};
use told::Told;

/// How often the store is asked whether there is something new.
const TICK: Duration = Duration::from_secs(1);
/// Alarms are judged once in this time at most, and in a twentieth of all time at most: a large mesh takes seconds.
const JUDGED_EVERY: Duration = Duration::from_secs(5);
const REST: u32 = 20;
const HOUR_NS: u64 = 3_600_000_000_000;
/// The last results of an hour are on their way for so long after it. No diagnosis is asked for before.
const ARRIVES_NS: u64 = 120_000_000_000;

/// Whom alarms are told.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Alarms of the coordinator")]
pub(crate) struct AlarmOptions {
    /// Run this program when an alarm begins and when it ends, once each; the alarm is JSON on its standard input
    #[arg(long, value_name = "PROGRAM", requires = "coordinator")]
    pub(crate) on_alarm: Option<PathBuf>,
    /// POST each alarm to this address as JSON when it begins and when it ends, once each
    ///
    /// Other users can see arguments. If the address contains a secret, use the environment variable.
    #[arg(long, value_name = "URL", env = "LONGHAUL_WEBHOOK", hide_env_values = true, requires = "coordinator", value_parser = webhook::address)]
    pub(crate) webhook: Option<String>,
}

/// Alarms that are open, as they were last judged.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Judged>);

/// What was judged, and when.
#[derive(Debug, Default, Clone)]
pub(crate) struct Judged {
    /// Those that are open.
    pub(crate) alarms: Vec<Alarm>,
    /// Those that ended in the last day, the latest first.
    pub(crate) over: Vec<Alarm>,
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
        open: Vec::new(),
        archive,
        judging: Judging::default(),
    };
    thread::Builder::new().name("alarms".into()).spawn(move || watch.run()).map_err(Failure::new)?;
    Ok(watched)
}

struct Watch {
    folder: Folder,
    options: AlarmOptions,
    watched: Arc<Watched>,
    told: Told,
    /// As last judged, each with its id.
    open: Vec<(String, place::Alarm)>,
    archive: Archive,
    judging: Judging,
}

impl Watch {
    fn run(mut self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return stderr_line!("alarms: {error}"),
        };
        let opened = self.folder.store().and_then(|store| Ok(runtime.block_on(Reader::open(store))?));
        let reader = match opened {
            Ok(reader) => reader,
            Err(failure) => return stderr_line!("alarms: {failure}"),
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
            // Before the first judgement nobody knows what is open.
            if last.is_some() {
                say_once(&mut failed, self.diagnose().and_then(|()| self.take_answers()));
                self.show();
                say_once(&mut failed, self.told.tell(&self.folder, &self.options, now_ns()));
            }
            thread::sleep(TICK);
        }
    }

    fn judge(&mut self) -> Result<(), Failure> {
        let (_, mesh) = mesh(&self.folder)?;
        let open = self.judging.open(&mesh, &mut self.archive)?;
        let alarms: Vec<Alarm> = open.iter().map(|alarm| Alarm::new(&mesh, alarm)).collect();
        self.open = alarms.iter().map(|alarm| alarm.id.clone()).zip(open).collect();
        let now = now_ns();
        self.told.open(&self.folder, &alarms, now)?;
        let over = self.told.over(&alarms, now);
        let alarms = self.told.with_diagnoses(&alarms);
        *self.watched.lock() = Judged { alarms, over, at_ns: i64::try_from(now).unwrap_or(i64::MAX) };
        Ok(())
    }

    /// What has changed since alarms were judged: some ended, of some a diagnosis came.
    fn show(&mut self) {
        let alarms = self.watched.judged().alarms;
        let over = self.told.over(&alarms, now_ns());
        let alarms = self.told.with_diagnoses(&alarms);
        let mut judged = self.watched.lock();
        (judged.alarms, judged.over) = (alarms, over);
    }

    /// Looks for diagnoses that were asked for. A site's clock may be behind.
    fn take_answers(&mut self) -> Result<(), Failure> {
        let asked = self.told.asked();
        if asked.is_empty() {
            return Ok(());
        }
        let mut answers = Vec::new();
        for (wanted, asked_ns) in asked {
            answers.extend(self.archive.diagnosis_of(&wanted, asked_ns.saturating_sub(DAY_NS))?);
        }
        self.told.take_answers(&self.folder, &answers, now())
    }

    /// Asks a site for a diagnosis of each alarm that is open, once.
    fn diagnose(&mut self) -> Result<(), Failure> {
        if now_ns() % HOUR_NS < ARRIVES_NS {
            return Ok(());
        }
        let new = self.open.iter().filter(|(id, _)| self.told.wants_diagnosis(id));
        let new: Vec<(String, place::Alarm)> = new.cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let (_, mesh) = mesh(&self.folder)?;
        let mut asking = diagnoses::Asking::default();
        for (id, alarm) in &new {
            let asked = asking.ask(&mesh, &mut self.archive, alarm)?;
            self.told.is_asked(&self.folder, id, asked)?;
        }
        Ok(())
    }
}

/// Says what fails when it begins to, not each second again.
fn say_once(last: &mut String, done: Result<(), Failure>) {
    if let Err(failure) = done {
        let text = failure.to_string();
        if text != *last {
            stderr_line!("alarms: {text}");
        }
        *last = text;
    }
}
