//! Programs of others in the place of a test: the result has what they moved, by their own account.

use std::fs;

use super::{Folder, ONCE, only_runs, unprivileged};
use crate::common::captures::missing;
use crate::common::{longhaul, object, side_by_side};

/// What is fetched: some 320 ms at the path's rate.
const FILE_BYTES: u64 = 2_000_000;

/// Runs `client` and `server` of an experiment, where `folder` has `file` to be fetched; the bytes that they moved.
fn moved(folder: &Folder, client: &str, server: &str, parser: &str) -> u64 {
    fs::write(folder.file("file"), vec![7; FILE_BYTES as usize]).unwrap();
    let (experiment, results) = (folder.file("some.toml"), folder.file("results"));
    let text = format!(
        "title = 'some'\npath = 'lan'\nchange = ['rate=50Mbit', 'queue=1MiB']\n\
         [[tcp]]\nname = 'some'\ncongestion = ['reno']\n\
         program = {{ client = {client:?}, server = {server:?}, parse = '{parser}', time = '20s' }}\n"
    );
    fs::write(&experiment, text).unwrap();
    let command = ["lab", "run", experiment.to_str().unwrap(), "-o", results.to_str().unwrap(), "--commands"];
    let output = longhaul(&[&command[..], &ONCE[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let result = object(&fs::read(results.join("result.json")).unwrap());
    let run = &only_runs(&result["result"]["tcp"][0])[0];
    let program = &run["program"];
    assert_eq!(program["parser"], parser, "{run:#}");
    assert!(program["duration_ns"].as_u64() > Some(300_000_000), "{run:#}");
    assert!(program["goodput_bps"].as_u64().is_some_and(|bps| bps > 0 && bps < 50_000_000), "{run:#}");
    program["bytes"].as_u64().unwrap()
}

#[test]
fn curl_fetches_a_file_as_a_run() {
    let _shared = side_by_side();
    if unprivileged() || missing("curl") || missing("python3") {
        return;
    }
    let folder = Folder::new("curl");
    let server = format!("exec python3 -m http.server 80 -d {}", folder.0.display());
    let client = "curl -so /dev/null -w '%{json}' http://{server}/file";
    assert_eq!(moved(&folder, client, &server, "curl"), FILE_BYTES);
}

#[test]
fn rsync_fetches_a_file_as_a_run() {
    let _shared = side_by_side();
    if unprivileged() || missing("rsync") {
        return;
    }
    let folder = Folder::new("rsync");
    let (settings, copy) = (folder.file("rsyncd.conf"), folder.file("copy"));
    let path = folder.0.display();
    fs::write(&settings, format!("use chroot = no\nuid = 0\ngid = 0\n[files]\npath = {path}\n")).unwrap();
    let server = format!("exec rsync --daemon --no-detach --config={}", settings.display());
    let client = format!("rsync --stats rsync://{{server}}/files/file {}", copy.display());
    let bytes = moved(&folder, &client, &server, "rsync");
    // With what its protocol takes.
    assert!((FILE_BYTES..FILE_BYTES + 100_000).contains(&bytes), "{bytes}");
    assert_eq!(fs::metadata(copy).unwrap().len(), FILE_BYTES);
}
