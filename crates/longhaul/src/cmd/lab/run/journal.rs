//! `runs.jsonl` in the folder of an experiment: a line for each run as soon as it is made, so that a killed experiment goes on (`--resume`).

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use longhaul_experiment::{Experiment, Hosts, Made, Plan, Ran};
use longhaul_kernel::new_file::{self, refuse_link_of_another};
use longhaul_lab::LabSpec;
use serde::{Deserialize, Serialize};

use crate::output::Failure;
use crate::output::saved::{RUNS, not_written};

/// Longest line that is read: a run with 10,000 losses has a tenth of it.
const LINE_BYTES_MOST: u64 = 16 << 20;
/// Lines that are read at most: each point of 64 series of 64 rates, 1,000 times.
const LINES_MOST: usize = 4 << 20;

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
    lab: LabSpec,
    /// When the first run began, RFC 3339.
    pub(super) started_at: String,
}

impl Header {
    pub(super) fn new(experiment: &Experiment, lab: &LabSpec, started_at: &str) -> Self {
        // The name has the number of the process.
        let lab = LabSpec { name: String::new(), ..lab.clone() };
        let title = experiment.title.clone();
        Self { title, experiment: experiment.identity(), lab, started_at: started_at.to_owned() }
    }
}

/// The file that runs are added to.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    has_hosts: bool,
}

impl Journal {
    /// A new one.
    pub(super) fn begin(folder: &Path, header: Header) -> Result<Self, Failure> {
        let path = folder.join(RUNS);
        let begin = || {
            new_file::write(&path, "")?;
            let mut journal = Self { file: OpenOptions::new().append(true).open(&path)?, has_hosts: false };
            journal.append(&Line::Experiment(header))?;
            Ok(journal)
        };
        begin().map_err(|error: io::Error| not_written(&path, error))
    }

    /// The one in `folder`, and its runs in `ran`. `header` gets its beginning. A line that was cut when the experiment was killed goes.
    pub(super) fn resume(folder: &Path, header: &mut Header, plan: &Plan, ran: &mut Ran) -> Result<Self, Failure> {
        let path = folder.join(RUNS);
        let refused = |why: String| {
            Failure::new("not_resumed", format!("--resume {}: {why}", path.display()))
                .remedy("give the experiment, the options and the folder of the run that was ended")
        };
        let open = || {
            refuse_link_of_another(&path)?;
            OpenOptions::new().read(true).append(true).open(&path)
        };
        let file = open().map_err(|error| refused(error.to_string()))?;
        let mut reader = BufReader::new(&file);
        let (mut whole_bytes, mut has_hosts) = (0, false);
        for number in 1..=LINES_MOST {
            let mut line = Vec::new();
            let read = reader.by_ref().take(LINE_BYTES_MOST).read_until(b'\n', &mut line);
            let read = read.map_err(|error| refused(error.to_string()))?;
            if line.last() != Some(&b'\n') && (read as u64) < LINE_BYTES_MOST {
                break;
            }
            let line = serde_json::from_slice(&line).map_err(|error| refused(format!("line {number}: {error}")))?;
            match (number, line) {
                (1, Line::Experiment(there)) => {
                    let same = Header { started_at: there.started_at.clone(), ..header.clone() };
                    if same != there {
                        return Err(refused(format!(
                            "its runs are of “{}” as it was then, or of other options of the emulator",
                            there.title
                        )));
                    }
                    *header = there;
                }
                (1, _) | (_, Line::Experiment(_)) => {
                    return Err(refused(format!("line {number}: not the file of an experiment")));
                }
                (_, Line::Hosts(hosts)) => {
                    has_hosts = true;
                    ran.hosts.get_or_insert(hosts);
                }
                (_, Line::Made(made)) => ran.add(plan, made),
            }
            whole_bytes += read as u64;
        }
        if whole_bytes == 0 {
            return Err(refused("it has no whole line".into()));
        }
        file.set_len(whole_bytes).map_err(|error| refused(error.to_string()))?;
        Ok(Self { file, has_hosts })
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
