//! Runs the blocks of pages that are marked so.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use longhaul_testing::program::Program;

use super::page::{Block, Fate, Page};
use crate::common::captures::Folder;

/// How long one block may take.
const BLOCK_TIME: Duration = Duration::from_secs(240);
/// How many pages run at a time.
const SIDE_BY_SIDE: usize = 4;
/// The line that the script prints before a block.
const MARK: &str = "::: block at line ";
/// How the script of a page begins. Beside other tests each run of an experiment is spoiled, and no better when it is made again. A server
/// of iperf3 listens a moment after its command has begun, which is sooner than anybody types.
const PREPARE: &str = "set -e -o pipefail
ip link set lo up
sudo() { \"$@\"; }
longhaul() {
    [[ \"$1 $2\" != 'lab run' ]] || set -- \"$@\" --tries 1
    [[ \"$1 $2 $3\" != 'lab exec client' || \"$*\" != *'iperf3 -c server'* ]] ||
        until command longhaul lab exec server -- ss -Hltn sport = 5201 | grep -q .; do sleep 0.1; done
    command longhaul \"$@\"
}
";

/// Runs the marked blocks of all pages, as root: those of one page in one shell, in a folder and a network of their own, and each of
/// README.md in one of its own, as people paste them. Pages run side by side, as most of their time is waiting; those with much to run begin, so that none of them is left alone at the end. What failed, with
/// what it printed.
pub(crate) fn run_marked(pages: &[Page]) -> Vec<String> {
    let marked = |page: &&Page| {
        page.blocks.iter().filter(|block| block.fate == Fate::Run).map(|block| block.script().len()).sum::<usize>()
    };
    let mut pages: Vec<&Page> = pages.iter().filter(|page| marked(page) > 0).collect();
    pages.sort_by_key(|page| std::cmp::Reverse(marked(page)));
    let (left, failed) = (Mutex::new(pages.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some(page) = left.lock().expect("no thread panics").next() else { return };
                    let began = Instant::now();
                    let outcome = run(page);
                    println!("{}: {:.1} s", page.name, began.elapsed().as_secs_f64());
                    if let Err(said) = outcome {
                        failed.lock().expect("no thread panics").push(format!("{}: {said}", page.name));
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no thread panics")
}

fn run(page: &Page) -> Result<(), String> {
    let name = page.name.trim_end_matches(".md").replace('/', "-");
    let blocks: Vec<&Block> = page.blocks.iter().filter(|block| block.fate == Fate::Run).collect();
    if name != "README" {
        return run_in_a_shell(&name, &blocks);
    }
    blocks.iter().try_for_each(|block| run_in_a_shell(&format!("{name}-{}", block.line), std::slice::from_ref(block)))
}

fn run_in_a_shell(name: &str, blocks: &[&Block]) -> Result<(), String> {
    let mut script = PREPARE.to_owned();
    for block in blocks {
        let _ = writeln!(script, "echo '{MARK}{}'\n{}", block.line, block.script());
    }
    Shell::start(name, &script).finish()
}

struct Shell {
    program: Program,
    _folder: Folder,
}

impl Shell {
    /// A shell whose processes end with it: it has a process namespace. Labs are found through its network namespace, so that it sees its own.
    fn start(name: &str, script: &str) -> Self {
        let folder = Folder::new(name);
        let (programs, work) = (folder.0.join("bin"), folder.0.join("work"));
        fs::create_dir_all(&programs).unwrap();
        fs::create_dir_all(&work).unwrap();
        symlink(env!("CARGO_BIN_EXE_longhaul"), programs.join("longhaul")).unwrap();
        fs::write(folder.0.join("script"), format!("exec 2>&1\n{script}")).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let child = Command::new("unshare")
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "../script"])
            .current_dir(work)
            .envs([("PATH", &*path), ("COLUMNS", "100")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("unshare(1)");
        Self { program: Program(child), _folder: folder }
    }

    /// Waits until the script has ended, and for no block longer than it may take. What it said, where it failed.
    fn finish(mut self) -> Result<(), String> {
        let (sender, lines) = channel();
        let stdout = self.program.0.stdout.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let (mut said, mut until) = (String::new(), Instant::now() + BLOCK_TIME);
        let outcome = loop {
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line.starts_with(MARK) => {
                    said = format!("{line}\n");
                    until = Instant::now() + BLOCK_TIME;
                }
                Ok(line) => said += &format!("{line}\n"),
                // Programs in the background keep the pipe open: the shell's own end counts.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    if let Some(status) = self.program.0.try_wait().expect("it is our child") {
                        break if status.success() { Ok(()) } else { Err(format!("{status}\n{said}")) };
                    }
                    if Instant::now() > until {
                        break Err(format!("took longer than {BLOCK_TIME:?}\n{said}"));
                    }
                }
            }
        };
        drop(lines);
        drop(self);
        reader.join().expect("it only reads");
        outcome
    }
}
