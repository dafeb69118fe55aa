//! What strangers who connect cost a command that answers others.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::Program;

use crate::common::captures::Folder;

/// Lines about failures that are written in a minute.
const LINES: usize = 120;

/// Hundreds of connections: the file for Prometheus is written once a second, and few lines tell of them.
#[test]
fn a_flood_of_connections_costs_few_lines_and_no_writes() {
    let folder = Folder::new("serve-strangers");
    let file = folder.file("serve.prom");
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["serve", "-p", "0", "--prometheus", &file]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut serving = Program(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(serving.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let address: SocketAddr = first.split([' ', ';']).find_map(|word| word.parse().ok()).expect(&first);
    let said = spawn(move || lines.collect::<Vec<String>>());

    let (began, mut strangers, mut written) = (Instant::now(), 0, BTreeSet::new());
    while strangers < 300 || began.elapsed() < Duration::from_secs(2) {
        let mut stranger = TcpStream::connect(address).unwrap();
        let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = stranger.read_to_end(&mut Vec::new());
        strangers += 1;
        written.extend(fs::metadata(&file).and_then(|about| about.modified()));
        sleep(Duration::from_millis(5));
    }
    // What was there at the beginning, and one for each second.
    let most = began.elapsed().as_secs() as usize + 2;
    assert!((2..=most).contains(&written.len()), "{} times, not {most} at most", written.len());

    Process::open(serving.0.id()).unwrap().expect("it runs").signal(Signal::INT).unwrap();
    let said = said.join().unwrap();
    let written = said.iter().filter(|line| line.ends_with("(not_longhaul)")).count();
    // More than one on a slow machine.
    let minutes = began.elapsed().as_secs() as usize / 60 + 1;
    assert!((LINES..=minutes * LINES).contains(&written), "{written} lines in {minutes} minutes: {said:?}");
    let number = |line: &String| {
        let (number, _) = line.strip_prefix("longhaul: ")?.split_once(" lines were left out here")?;
        number.parse::<usize>().ok()
    };
    let left_out: usize = said.iter().filter_map(number).sum();
    assert_eq!(written + left_out, strangers, "each is written or counted: {said:?}");
}
