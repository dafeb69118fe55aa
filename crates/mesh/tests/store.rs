//! Nothing is lost and nothing is stored twice: a writer is killed at a random moment, again and again, and delivery goes on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use longhaul_mesh::store::{Archive, Kept, Outbox, TestResult};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};

const CHILD: &str = "LONGHAUL_MESH_STORE_CHILD";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn result(number: u64) -> TestResult {
    TestResult {
        id: format!("{number:032x}"),
        test: "probes".into(),
        sender: "ithaca".into(),
        receiver: "geneva".into(),
        at_ns: 1_767_225_600_000_000_000 + number as i64 * 1_000_000_000,
        sent: 1000,
        lost: (number % 7) as i64,
        at_sender: None,
        at_receiver: Some(0),
        received_rate_bps: 1_000_000,
    }
}

/// Not a test by itself: what a killed process does. It measures results with the numbers after the greatest that it finds written down, and says
/// of each that it is kept once `put` returned; and it delivers, and confirms.
#[test]
fn child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let folder = Path::new(&folder);
    let mut outbox = Outbox::open(&folder.join("outbox")).unwrap();
    let mut archive = Archive::open(&folder.join("archive")).unwrap();
    let kept = folder.join("kept");
    let mut next = fs::read_to_string(&kept).unwrap_or_default().lines().count() as u64;
    loop {
        for _ in 0..3 {
            outbox.put(&Kept::Udp(result(next))).unwrap();
            let mut all = fs::read_to_string(&kept).unwrap_or_default();
            all.push_str(&format!("{next}\n"));
            fs::write(folder.join("kept.part"), all).unwrap();
            fs::rename(folder.join("kept.part"), &kept).unwrap();
            next += 1;
        }
        let waiting = oldest(&mut outbox, 2);
        archive.take(&waiting).unwrap();
        let ids: Vec<String> = waiting.into_iter().map(|result| result.id).collect();
        outbox.confirmed(&ids).unwrap();
    }
}

/// UDP results that wait, `most` of them.
fn oldest(outbox: &mut Outbox, most: u32) -> Vec<TestResult> {
    let udp = |(_, kept)| if let Kept::Udp(result) = kept { Some(result) } else { None };
    outbox.after(0, most).unwrap().into_iter().filter_map(udp).collect()
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_writer_loses_and_doubles_nothing() {
    let folder = Folder::new("killed");
    let kills = std::env::var("LONGHAUL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20u64);
    for kill in 0..kills {
        let mut child = start(&folder.0);
        // Somewhere between its steps, which take a few milliseconds each.
        thread::sleep(Duration::from_millis(40 + kill * 7919 % 61));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let kept = fs::read_to_string(folder.0.join("kept")).unwrap().lines().count() as u64;
    assert!(kept > kills, "{kept} results in {kills} lives");
    let mut outbox = Outbox::open(&folder.0.join("outbox")).unwrap();
    let mut archive = Archive::open(&folder.0.join("archive")).unwrap();
    let rest = oldest(&mut outbox, 1_000_000);
    assert!(!rest.is_empty(), "the test must not have delivered all");
    archive.take(&rest).unwrap();
    let all = archive.since(0).unwrap();
    let ids: BTreeSet<&String> = all.iter().map(|result| &result.id).collect();
    assert_eq!(ids.len(), all.len(), "a result is there twice");
    for number in 0..kept {
        assert!(all.contains(&result(number)), "result {number} of {kept} is missing");
    }
    // The last one may be there although the child was killed before it wrote that down.
    assert!(all.len() as u64 <= kept + 1);
    let sums = archive.hours(0).unwrap().iter().fold((0, 0), |sum, hour| (sum.0 + hour.tests, sum.1 + hour.lost));
    assert_eq!(
        sums,
        (all.len() as i64, all.iter().map(|result| result.lost).sum()),
        "sums by hour are those of the results"
    );
}

#[test]
fn what_is_delivered_twice_is_there_once() {
    let folder = Folder::new("twice");
    let mut archive = Archive::open(&folder.0.join("archive")).unwrap();
    let results: Vec<TestResult> = (0..10).map(result).collect();
    assert_eq!(archive.take(&results).unwrap(), 10);
    assert_eq!(archive.take(&results[5..]).unwrap(), 0);
    assert_eq!(archive.since(0).unwrap(), results);
    let hours = archive.hours(0).unwrap();
    assert_eq!((hours.len(), hours[0].tests, hours[0].sent), (1, 10, 10_000));
}

#[test]
fn a_newer_store_is_refused() {
    let folder = Folder::new("newer");
    let path = folder.0.join("outbox");
    drop(Outbox::open(&path).unwrap());
    let options = SqliteConnectOptions::new().filename(&path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("PRAGMA user_version = 9").execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
    let error = Outbox::open(&path).unwrap_err().to_string();
    assert_eq!(error, "the store has form 9, this longhaul knows 1: use the newer longhaul");
}

#[test]
fn a_full_disk_is_said_and_what_was_kept_stays() {
    let folder = Folder::new("full");
    let path = folder.0.join("outbox");
    let mut outbox = Outbox::open(&path).unwrap();
    outbox.put(&Kept::Udp(result(1))).unwrap();
    drop(outbox);
    // A limit of the size of a file stands for the disk: 150 KiB, more than the empty store.
    let mut small = Command::new("sh");
    small.args(["-c", "ulimit -f 300; trap '' XFSZ; exec \"$0\" --exact filler --nocapture"]);
    let output = small.arg(std::env::current_exe().unwrap()).env("LONGHAUL_MESH_FILL", &folder.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut outbox = Outbox::open(&path).unwrap();
    let kept = oldest(&mut outbox, 100_000);
    let said: u64 = fs::read_to_string(folder.0.join("count")).unwrap().trim().parse().unwrap();
    assert!(kept.contains(&result(1)));
    assert_eq!(kept.len() as u64, said + 1, "what was said to be kept is kept, and no more");
}

/// The process of the test above: puts results until the disk takes no more.
#[test]
fn filler() {
    let Ok(folder) = std::env::var("LONGHAUL_MESH_FILL") else { return };
    let folder = Path::new(&folder);
    let mut outbox = Outbox::open(&folder.join("outbox")).unwrap();
    for count in 0.. {
        if outbox.put(&Kept::Udp(result(100 + count))).is_err() {
            fs::write(folder.join("count"), count.to_string()).unwrap();
            return;
        }
        assert!(count < 100_000, "the limit is no limit");
    }
}
