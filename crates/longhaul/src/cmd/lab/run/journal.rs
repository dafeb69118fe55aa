//! `runs.jsonl` in the folder of an experiment: a line for each run as soon as it is made, so that a killed experiment goes on (`--resume`).

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longhaul_experiment::{Experiment, FACTORS, Hosts, Made, Plan, Ran};
use longhaul_kernel::links::followed;
use longhaul_kernel::signals::StopSignal;
use longhaul_lab::LabSpec;
use longhaul_units::Nanos;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::output::Failure;
use crate::output::saved::{Folder, RUNS};

/// Longest line that is read: a run with 10,000 losses has a tenth of it.
const LINE_BYTES_MOST: u64 = 16 << 20;
/// Lines that are read at most: each point of 64 series of 64 rates, 1,000 times.
const LINES_MOST: usize = 4 << 20;

/// A journal that is read before it goes on.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    reader: BufReader<File>,
    number: usize,
    whole_bytes: u64,
}

impl Kept {
    /// The next line; `None` at the end, and for a line that was cut when the experiment was killed.
    fn next(&mut self) -> Result<Option<Line>, Failure> {
        let mut line = Vec::new();
        let read = self.reader.by_ref().take(LINE_BYTES_MOST).read_until(b'\n', &mut line);
        let read = read.map_err(|error| not_resumed(&self.path, error))? as u64;
        if self.number == LINES_MOST || line.last() != Some(&b'\n') && read < LINE_BYTES_MOST {
            return Ok(None);
        }
        (self.number, self.whole_bytes) = (self.number + 1, self.whole_bytes + read);
        let of_line = |error| not_resumed(&self.path, format!("line {}: {error}", self.number));
        serde_json::from_slice(&line).map(Some).map_err(of_line)
    }

    /// Puts the runs into `ran`. What is cut at the end goes, and the journal can go on. Where `stopped` has a signal before that, the file
    /// stays as it was.
    pub(super) fn resume(
        mut self,
        plan: &Plan,
        ran: &mut Ran,
        stopped: impl Fn() -> Option<StopSignal>,
    ) -> Result<Journal, Failure> {
        while let Some(line) = self.next()? {
            if let Some(signal) = stopped() {
                return Err(Failure::interrupted_reading(&self.path, signal));
            }
            match line {
                Line::Experiment(_) => return Err(not_resumed(&self.path, "it begins two experiments")),
                Line::Hosts(hosts) => drop(ran.hosts.get_or_insert(hosts)),
                Line::Made(made) => ran.add_earlier(plan, made),
            }
        }
        ran.average();
        let file = self.reader.into_inner();
        file.set_len(self.whole_bytes).map_err(|error| not_resumed(&self.path, error))?;
        Ok(Journal { file, has_hosts: ran.hosts.is_some() })
    }
}

fn not_resumed(path: &Path, why: impl Display) -> Failure {
    Failure::new("not_resumed", format!("--resume {}: {why}", path.display()))
        .remedy("give the experiment, the options and the folder of the run that was ended")
}

/// The emulator of the runs that are there had other CPUs, another priority, or slept for another time: these may have been chosen by `lab run` (`own_cpu.rs`).
fn placed_otherwise(path: &Path, there: &LabSpec) -> Failure {
    let cpus: Vec<String> = there.cpus.iter().map(usize::to_string).collect();
    let cpus = cpus.join(",");
    let (was, remedy) = match (cpus.as_str(), there.realtime) {
        ("", None) => {
            ("on the hosts' CPUs".to_owned(), "give --share-cpus, and leave out --cpu and --realtime".to_owned())
        }
        ("", Some(priority)) => (
            format!("on the hosts' CPUs, at SCHED_FIFO priority {priority}"),
            format!("give --share-cpus --realtime {priority}, and leave out --cpu"),
        ),
        (cpus, None) => (format!("on CPU {cpus}"), format!("give --cpu {cpus}, and leave out --realtime")),
        (cpus, Some(priority)) => (
            format!("on CPU {cpus}, at SCHED_FIFO priority {priority}"),
            format!("give --cpu {cpus} --realtime {priority}"),
        ),
    };
    let late = there.wake_interval;
    let sleeping = if late > Nanos::ZERO { format!(", with --wake-interval {late}") } else { String::new() };
    // With --spin there is no --wake-interval.
    let remedy = if there.spin { remedy } else { format!("{remedy}; and --wake-interval {late}") };
    not_resumed(path, format!("the emulator of its runs was {was}{sleeping}")).remedy(remedy)
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    /// The first: what is run.
    Experiment(Header),
    /// The hosts as the first test saw them.
    Hosts(Hosts),
    /// A run that was made to its end.
    #[serde(untagged)]
    Made(Made),
}

/// What runs have to agree in to be of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    title: String,
    /// All of it but how often it is run, as it was understood.
    experiment: String,
    /// By how much rates, buffers and queues were scaled.
    pub(super) factor: f64,
    lab: LabSpec,
    /// The host that answers in place of labs.
    #[serde(default)]
    server: Option<String>,
    /// When the first run began, RFC 3339.
    pub(super) started_at: String,
}

impl Header {
    /// `experiment` before it is scaled.
    pub(super) fn new(
        experiment: &Experiment,
        factor: f64,
        lab: &LabSpec,
        server: Option<&str>,
        started_at: &str,
    ) -> Self {
        // The name has the number of the process.
        let lab = LabSpec { name: String::new(), ..lab.clone() };
        let title = experiment.title.clone();
        let (server, started_at) = (server.map(str::to_owned), started_at.to_owned());
        Self { title, experiment: experiment.identity(), factor, lab, server, started_at }
    }
}

/// The file that runs are added to.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    has_hosts: bool,
}

impl Journal {
    /// A new one, in place of the result of before. It is there once it has its first line.
    pub(super) fn begin(folder: &Folder, header: Header) -> io::Result<Self> {
        let new = folder.create(RUNS)?;
        let mut journal = Self { file: new.file().try_clone()?, has_hosts: false };
        journal.append(&Line::Experiment(header))?;
        folder.put(RUNS, new)?;
        Ok(journal)
    }

    /// The one in `folder`, which the user calls `name`: its runs, which are still to be read, and its first line. It has to have begun as
    /// `header`, but for time and factor.
    pub(super) fn open(name: &Path, folder: &Path, header: &Header) -> Result<(Kept, Header), Failure> {
        let path = name.join(RUNS);
        // A link that takes the file's place is not followed.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let open = || {
            let path = followed(&folder.join(RUNS))?;
            let file = OpenOptions::new().read(true).append(true).custom_flags(no_link).open(path)?;
            // What is read of a pipe never comes.
            if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
        };
        let file = open().map_err(|error| not_resumed(&path, error))?;
        let mut kept = Kept { path, reader: BufReader::new(file), number: 0, whole_bytes: 0 };
        match kept.next()? {
            Some(Line::Experiment(there)) => {
                let Header { started_at, factor, .. } = there.clone();
                let same = Header { started_at, factor, ..header.clone() };
                if same != there {
                    let LabSpec { cpus, realtime, wake_interval, .. } = there.lab.clone();
                    let lab = LabSpec { cpus, realtime, wake_interval, ..same.lab.clone() };
                    if (Header { lab, ..same }) == there {
                        return Err(placed_otherwise(&kept.path, &there.lab));
                    }
                    let title = &there.title;
                    let why =
                        format!("its runs are of an earlier form of “{title}”, or had other options of the emulator");
                    return Err(not_resumed(&kept.path, why));
                }
                if !FACTORS.contains(&there.factor) {
                    let why = format!("no calibration finds a factor of {}", there.factor);
                    return Err(not_resumed(&kept.path, why));
                }
                Ok((kept, there))
            }
            _ => Err(not_resumed(&kept.path, "it is not the file of an experiment's runs")),
        }
    }

    /// Adds a run, and the hosts once they are known.
    pub(super) fn add(&mut self, made: &Made, ran: &Ran) -> io::Result<()> {
        if let Some(hosts) = ran.hosts.as_ref().filter(|_| !self.has_hosts) {
            self.append(&Line::Hosts(hosts.clone()))?;
            self.has_hosts = true;
        }
        self.append(&Line::Made(made.clone()))
    }

    /// In one call to the kernel: a kill leaves a whole line, or a part of the last one.
    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_experiment::Choice;

    use super::*;

    fn header(cpus: &[usize], realtime: Option<u8>, seed: u64) -> Header {
        let lab = LabSpec { name: String::new(), cpus: cpus.into(), realtime, seed, ..LabSpec::default() };
        let (title, experiment) = ("some".to_owned(), "all of it".to_owned());
        Header { title, experiment, factor: 1.0, lab, server: None, started_at: "now".to_owned() }
    }

    /// Who stops it while a long journal is read finds the journal as it was, and goes on another time.
    #[test]
    fn a_stop_while_it_is_read_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("longhaul-journal-stopped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, header) = (folder.join(RUNS), header(&[1], Some(50), 1));
        drop(Journal::begin(&Folder::open(folder.clone()).unwrap(), header.clone()).unwrap());
        let begun = std::fs::read_to_string(&file).unwrap();
        let hosts = "{\"kind\":\"hosts\",\"client\":{},\"server\":null}\n";
        let written = format!("{begun}{hosts}{{\"kind\":\"udp\",\"ser");
        std::fs::write(&file, &written).unwrap();
        let nima = Experiment::load("nima").unwrap();
        let plan = Plan::of(&nima, &Choice::default(), 1).unwrap();
        let resumed = |stopped: Option<StopSignal>| {
            let mut ran = Ran::new(&nima, &plan, 1);
            let (kept, _) = Journal::open(&folder, &folder, &header).unwrap();
            let failure = kept.resume(&plan, &mut ran, || stopped).err();
            (failure.map(|failure| failure.message().to_owned()), std::fs::read_to_string(&file).unwrap())
        };
        let (failure, left) = resumed(Some(StopSignal::Interrupt));
        assert!(failure.is_some_and(|why| why.contains("interrupted while it was read")));
        assert_eq!(left, written);
        assert_eq!(resumed(None), (None, begun + hosts), "what was cut goes");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Runs that were begun with the emulator elsewhere go on with it there, and not without a word where it is by default now.
    #[test]
    fn runs_with_the_emulator_elsewhere_are_not_mixed() {
        let folder = std::env::temp_dir().join(format!("longhaul-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = header(&[1], Some(50), 1);
        let mut failures = Vec::new();
        let mut late = header(&[], None, 1);
        late.lab.wake_interval = Nanos::from_micros(100);
        for there in
            [header(&[], None, 1), header(&[0, 2], None, 1), header(&[], Some(10), 1), late, header(&[], None, 2)]
        {
            drop(Journal::begin(&Folder::open(folder.clone()).unwrap(), there.clone()).unwrap());
            assert!(Journal::open(&folder, &folder, &there).is_ok());
            failures.push(Journal::open(&folder, &folder, &own).unwrap_err());
            std::fs::remove_file(folder.join(RUNS)).unwrap();
        }
        std::fs::remove_dir(&folder).unwrap();
        for (failure, said) in failures.iter().zip([
            "was on the hosts' CPUs",
            "was on CPU 0,2",
            "was on the hosts' CPUs, at SCHED_FIFO priority 10",
            "was on the hosts' CPUs, with --wake-interval 100us",
            "or had other options of the emulator",
        ]) {
            assert!(failure.message().ends_with(said), "{}", failure.message());
        }
        let remedy = format!("{:?}", failures[1]);
        assert!(remedy.contains("give --cpu 0,2, and leave out --realtime; and --wake-interval 0ns"), "{remedy}");
        let spins = format!("{:?}", placed_otherwise(&folder, &LabSpec { spin: true, ..own.lab }));
        assert!(spins.contains("give --cpu 1 --realtime 50") && !spins.contains("--wake-interval"), "{spins}");
    }
}
