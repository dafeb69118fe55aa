//! What somebody can do to the coordinator's disk with the key of one site: write files of its own tests, within its share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use longhaul_mesh_model::message::Message;
use longhaul_mesh_model::result::{FileKind, TestFile};
use longhaul_report::parquet::write_losses;
use longhaul_result::Location;
use longhaul_testing::waiting::until;
use longhaul_udp::locate::Loss;
use longhaul_units::Bytes;

use super::{KeepOptions, KeptFiles};
use crate::coordinator::{self, now};
use crate::folder::random;
use crate::stolen::Mesh;
use crate::store::DAY_NS;

/// A file of losses in base64. Its runs are random, so that it is not packed to nothing.
fn content(runs: u64) -> String {
    let loss = |_| Loss {
        stream: 0,
        first_sequence: u64::from_le_bytes(random().unwrap()),
        packets: 1,
        unit_packets: 1,
        location: Location::Network,
        reason: "".into(),
    };
    let mut file = Vec::new();
    write_losses(&mut file, (0..runs).map(loss)).unwrap();
    STANDARD.encode(file)
}

fn file(sender: &str, receiver: &str) -> TestFile {
    TestFile {
        of: FileKind::Losses,
        id: random::<16>().unwrap().iter().map(|byte| format!("{byte:02x}")).collect(),
        test: "probes".into(),
        sender: sender.into(),
        receiver: receiver.into(),
        at_ns: now() - 5 * DAY_NS,
        content: content(5),
    }
}

/// All files below a folder, by path, with their lengths.
fn below(folder: &Path) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        match about.is_dir() {
            true => all.extend(below(&path)),
            false => _ = all.insert(path.to_str().unwrap().to_owned(), about.len()),
        }
    }
    all
}

/// A coordinator that keeps so much of losses, and how it answers.
fn keeping(mesh: &Mesh, losses: u64) -> impl Fn(&str, &TestFile) -> Message {
    let options = KeepOptions { keep_losses: Some(Bytes(losses)), keep_samples: None, keep_days: Some(30) };
    let files = Arc::new(KeptFiles::new(&mesh.folder, &options));
    let answering = coordinator::answering(&mesh.folder, files).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), answering);
    move |site, file| ask(site, Message::DeliverFile { file: file.clone() })
}

fn confirmed(answer: &Message) -> bool {
    matches!(answer, Message::Confirmed { ids } if ids.len() == 1)
}

#[test]
fn a_stolen_key_writes_files_of_its_own_tests_alone() {
    let mesh = Mesh::make("stolen-files");
    let deliver = keeping(&mesh, 10 << 20);
    let before = below(&mesh.folder.file(""));
    let hostile: [fn(&mut TestFile); 13] = [
        |file| file.sender = "chicago".into(),
        |file| file.test = "made up".into(),
        |file| file.receiver = "mallory".into(),
        |file| file.id = "../../../site=geneva/day=2026-01".into(),
        |file| file.id = "/tmp/0123456789abcdef0123456789a".into(),
        |file| file.id = "0123456789abcdef".into(),
        |file| file.at_ns = -1,
        |file| file.at_ns = i64::MAX,
        |file| file.at_ns = now() - 31 * DAY_NS,
        |file| file.content = "no base64".into(),
        |file| file.content = STANDARD.encode("PAR1 no Parquet PAR1"),
        |file| file.content = content(10_001),
        |file| file.content.truncate(file.content.len() / 2),
    ];
    for (number, change) in hostile.into_iter().enumerate() {
        let mut file = file("ithaca", "geneva");
        change(&mut file);
        if number == 0 {
            file.receiver = "geneva".into();
        }
        // It is confirmed, so that an honest site does not bring it again and again.
        assert!(confirmed(&deliver("ithaca", &file)), "{number}");
        let after = below(&mesh.folder.file(""));
        let new: Vec<_> = after.keys().filter(|path| path.ends_with(".parquet")).collect();
        assert!(new.is_empty(), "{number}: {new:?}, {before:?}");
    }
    // Kinds that nobody asked for.
    let unasked = TestFile { of: FileKind::Samples, ..file("ithaca", "geneva") };
    assert!(matches!(deliver("ithaca", &unasked), Message::Refused { .. }));
    // Its own is kept, once, as it came first, in its own folder; whether it sent or received.
    let own = [file("ithaca", "geneva"), file("chicago", "ithaca")];
    for file in &own {
        assert!(confirmed(&deliver("ithaca", file)));
        let kept = below(&mesh.folder.file("losses"));
        let other = TestFile { content: content(50), ..file.clone() };
        assert!(confirmed(&deliver("ithaca", file)) && confirmed(&deliver("ithaca", &other)));
        assert_eq!(below(&mesh.folder.file("losses")), kept);
        let path = mesh.folder.file("losses/site=ithaca").join(super::day_of(file.at_ns));
        assert!(path.join(format!("{}.parquet", file.id)).is_file(), "{kept:?}");
    }
    assert_eq!(below(&mesh.folder.file("losses")).len(), 2);
}

/// As fast as it can, over many days: it gets its share of the disk, and takes nothing of another's.
#[test]
fn a_stolen_key_fills_its_own_share_alone() {
    let mesh = Mesh::make("stolen-share");
    // Each of the three sites may take 300 kB.
    let deliver = keeping(&mesh, 900_000);
    let honest = file("geneva", "chicago");
    assert!(confirmed(&deliver("geneva", &honest)));
    for number in 0..80 {
        let long =
            TestFile { content: content(1_500), at_ns: now() - (80 - number) / 4 * DAY_NS, ..file("ithaca", "geneva") };
        assert!(confirmed(&deliver("ithaca", &long)));
        let taken: u64 =
            below(&mesh.folder.file("losses/site=ithaca")).values().map(|bytes| bytes.div_ceil(4096) * 4096).sum();
        assert!(taken <= 300_000, "{taken}");
    }
    let own = below(&mesh.folder.file("losses/site=ithaca"));
    assert!(own.values().sum::<u64>() > 100_000, "{own:?}");
    // A day of its own that is full takes nothing more.
    for _ in 0..40 {
        let long = TestFile { content: content(1_500), at_ns: now(), ..file("ithaca", "geneva") };
        assert!(confirmed(&deliver("ithaca", &long)));
    }
    assert!(below(&mesh.folder.file("losses/site=ithaca")).values().sum::<u64>() <= 300_000);
    assert!(confirmed(&deliver("geneva", &file("geneva", "chicago"))));
    let others = below(&mesh.folder.file("losses/site=geneva"));
    assert!(others.len() == 2 && others.keys().any(|path| path.contains(&honest.id)), "{others:?}");
}

/// A coordinator that keeps none says so, and sites deliver none.
#[test]
fn a_coordinator_that_keeps_none_asks_for_none() {
    let mesh = Mesh::make("stolen-none");
    let answering = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), answering);
    let fetched = ask("ithaca", Message::Fetch { have: String::new() });
    assert!(matches!(fetched, Message::Mesh { files, .. } if files.is_empty()));
    let refused = ask("ithaca", Message::DeliverFile { file: file("ithaca", "geneva") });
    assert!(matches!(refused, Message::Refused { .. }), "{refused:?}");
    assert!(!mesh.folder.file("losses").exists());
}

/// Whether a thread of this process, by its name, waits for a lock that is at one of these addresses: proc_pid_syscall(5) has what futex(2) waits at.
fn waits_at(name: &str, addresses: &Range<usize>) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| Some(task.ok()?.path()));
    let of = |task: &Path, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let mut calls = tasks.filter(|task| of(task, "comm").trim_end() == name).map(|task| of(&task, "syscall"));
    // The call's number, and its arguments in hexadecimal.
    let first = |call: &str| usize::from_str_radix(call.split(' ').nth(1)?.strip_prefix("0x")?, 16).ok();
    calls.any(|call| first(&call).is_some_and(|address| addresses.contains(&address)))
}

/// A site brings a file while its folder is in use, as where very many files are counted or removed. Another site's file is kept meanwhile.
#[test]
fn nobody_waits_for_the_folder_of_another_site() {
    const LONGEST: Duration = Duration::from_secs(60);
    let mesh = Mesh::make("stolen-waits");
    let options = KeepOptions { keep_losses: Some(Bytes(1 << 20)), keep_samples: None, keep_days: None };
    let files = KeptFiles::new(&mesh.folder, &options);
    let sites = BTreeSet::from(["ithaca", "geneva"].map(str::to_owned));
    let take = |site: &str, file: &TestFile| files.take((site, &sites), file, now()).unwrap().unwrap();
    take("ithaca", &file("ithaca", "geneva"));
    let ithaca = Arc::clone(&files.kinds[&FileKind::Losses].sites().own["ithaca"]);
    // It has one lock.
    let begin = Arc::as_ptr(&ithaca) as usize;
    let addresses = begin..begin + size_of_val(&*ithaca);
    let (done, is_done) = mpsc::channel();
    let kept = thread::scope(|scope| {
        let mut kept = None;
        let in_use = |_: &File| {
            let second = thread::Builder::new().name("waits".into());
            second.spawn_scoped(scope, || take("ithaca", &file("ithaca", "geneva"))).unwrap();
            until("the file to wait for its folder", || waits_at("waits", &addresses));
            scope.spawn(|| {
                take("geneva", &file("geneva", "ithaca"));
                done.send(()).unwrap();
            });
            kept = Some(is_done.recv_timeout(LONGEST));
            Ok::<(), String>(())
        };
        ithaca.keep((&"0".repeat(32), now()), now(), in_use).unwrap().unwrap();
        kept
    });
    assert_eq!(kept, Some(Ok(())));
}

/// A site that joins takes from the share of others. Who has more than that loses its oldest days, and who brings files does not wait for it.
#[test]
fn a_smaller_share_is_swept() {
    let mesh = Mesh::make("stolen-joins");
    let options = KeepOptions { keep_losses: Some(Bytes(600_000)), keep_samples: None, keep_days: None };
    let files = KeptFiles::new(&mesh.folder, &options);
    files.swept_by(thread::current());
    let woken = || {
        let begun = Instant::now();
        thread::park_timeout(Duration::from_secs(60));
        begun.elapsed() < Duration::from_secs(60)
    };
    let mut sites = BTreeSet::from(["ithaca".to_owned(), "geneva".to_owned()]);
    for day in 0..20 {
        let long = TestFile { content: content(1_500), at_ns: now() - (20 - day) * DAY_NS, ..file("ithaca", "geneva") };
        files.take(("ithaca", &sites), &long, now()).unwrap().unwrap();
    }
    assert!(woken(), "the first share");
    let taken = || -> u64 {
        let all = below(&mesh.folder.file("losses/site=ithaca"));
        all.values().map(|bytes| bytes.div_ceil(4096) * 4096).sum()
    };
    assert!((200_000..=300_000).contains(&taken()), "{}", taken());
    sites.insert("chicago".to_owned());
    files.take(("chicago", &sites), &file("chicago", "ithaca"), now()).unwrap().unwrap();
    assert!(woken(), "another share");
    files.sweep(&sites, now()).unwrap();
    assert!((100_000..=200_000).contains(&taken()), "{}", taken());
}

/// A site that left the mesh keeps its files until they are too old; then its share goes to the others.
#[test]
fn the_files_of_a_former_site_go_by_age() {
    let mesh = Mesh::make("stolen-former");
    let options = KeepOptions { keep_losses: Some(Bytes(1 << 20)), keep_samples: None, keep_days: Some(30) };
    let sites = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let files = KeptFiles::new(&mesh.folder, &options);
    files.take(("ithaca", &sites(&["ithaca", "geneva"])), &file("ithaca", "geneva"), now()).unwrap().unwrap();
    // After a start without ithaca.
    let files = KeptFiles::new(&mesh.folder, &options);
    let of = &files.kinds[&FileKind::Losses];
    of.sweep(&sites(&["geneva"]), now()).unwrap();
    assert_eq!((below(&of.folder).len(), of.sites().share), (1, 1 << 19));
    for _ in 0..2 {
        of.sweep(&sites(&["geneva"]), now() + 27 * DAY_NS).unwrap();
    }
    assert_eq!((below(&of.folder).len(), of.sites().share), (0, 1 << 20));
}

/// Also where something is wrong with the folder of the other kind.
#[test]
fn files_of_each_kind_go_by_age() {
    let mesh = Mesh::make("stolen-kinds");
    let most = Some(Bytes(1 << 20));
    let files =
        KeptFiles::new(&mesh.folder, &KeepOptions { keep_losses: most, keep_samples: most, keep_days: Some(30) });
    fs::write(mesh.folder.file("losses"), "not a folder").unwrap();
    let old = mesh.folder.file("samples/site=ithaca/day=1970-01-02");
    fs::create_dir_all(&old).unwrap();
    let swept = files.sweep(&BTreeSet::from(["ithaca".to_owned()]), now());
    assert!(swept.is_err() && !old.exists());
}
