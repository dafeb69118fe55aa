//! Alarms and their ends are told once: to a program, to a web address, also when the coordinator starts again.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Archive, Measured, Measurement};
use serde_json::{Value, json};

use crate::common::{Coordinator, Folder, PATIENCE, diagnosis, hub, hub_of_all_kinds, names, now_ns, results};

/// Keeps the bodies of what is posted; refuses the first one.
fn receiver() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&told);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 || line.trim().is_empty() {
                    break;
                }
                if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let mut kept = kept.lock().unwrap();
            let status = if kept.is_empty() { "503 Service Unavailable" } else { "204 No Content" };
            kept.push(serde_json::from_slice(&body).unwrap());
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    (address, told)
}

fn lines(file: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_alarm_is_told_once_to_a_program_and_a_web_address() {
    let folder = Folder::new("alarms");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle"]);
    // Since ten hours chicago loses 0.6 % of what it receives.
    let all = results(&sites, 24 * 10, |_, to, ago| if to == 2 && ago <= 10 { 60 } else { 0 });
    let hub = hub(&folder, &sites, &all);
    let program = folder.file("tell me; not a shell");
    // It fails the first time.
    let script = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\n[ -e tried ] || { touch tried; exit 3; }\ncat >> told\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let (address, posted) = receiver();
    let options = ["--on-alarm", program.to_str().unwrap(), "--webhook", &address];
    // Where no other user sees it.
    let coordinator = Coordinator::start_in(&hub, &options[..2], &[("LONGHAUL_WEBHOOK", &address)]);
    let begin = Instant::now();
    while lines(&folder.file("told")).is_empty() || posted.lock().unwrap().len() < 2 {
        assert!(begin.elapsed() < PATIENCE, "{:?} {:?}", lines(&folder.file("told")), posted.lock().unwrap());
        thread::sleep(Duration::from_millis(100));
    }
    let shown = coordinator.alarms();
    let alarm = &shown["alarms"][0];
    assert_eq!((shown["alarms"].as_array().unwrap().len(), &alarm["id"]), (1, &Value::from("receiver:chicago")));
    assert!((0.0055..0.0062).contains(&alarm["loss"].as_f64().unwrap()), "{alarm}");
    assert!(alarm["text"].as_str().unwrap().starts_with("what chicago receives loses"), "{alarm}");
    assert_eq!((&alarm["state"], &alarm["ended"]), (&json!("open"), &Value::Null));
    let why = "the mesh has no test of kind diagnose for a path of it";
    assert_eq!((&alarm["diagnosis"]["progress"], &alarm["diagnosis"]["why"]), (&json!("none"), &json!(why)));
    assert_eq!(lines(&folder.file("told")), std::slice::from_ref(alarm));
    assert_eq!(*posted.lock().unwrap(), [alarm.clone(), alarm.clone()], "the first one was refused");
    // Nothing more comes, not from the next start either.
    drop(coordinator);
    let coordinator = Coordinator::start(&hub, &options);
    assert_eq!(coordinator.alarms()["alarms"].as_array().unwrap().len(), 1);
    thread::sleep(Duration::from_secs(4));
    assert_eq!((lines(&folder.file("told")).len(), posted.lock().unwrap().len()), (1, 2));
    drop(coordinator);

    // A store in which the loss was over ten hours ago.
    for file in ["archive", "archive-wal", "archive-shm"] {
        let _ = fs::remove_file(hub.join(file));
    }
    let all = results(&sites, 24 * 10, |_, to, ago| if to == 2 && (20..=40).contains(&ago) { 60 } else { 0 });
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    all.chunks(5000).for_each(|part| assert_eq!(archive.take(part).unwrap(), part.len()));
    drop(archive);
    gone_since_two_minutes(&hub, &options);
    let coordinator = Coordinator::start(&hub, &options);
    let begin = Instant::now();
    while lines(&folder.file("told")).len() < 2 || posted.lock().unwrap().len() < 3 {
        assert!(begin.elapsed() < PATIENCE, "{:?} {:?}", lines(&folder.file("told")), posted.lock().unwrap());
        thread::sleep(Duration::from_millis(100));
    }
    let shown = coordinator.alarms();
    let over = &shown["over"][0];
    assert_eq!((&shown["alarms"], shown["over"].as_array().unwrap().len()), (&json!([]), 1));
    assert_eq!((&over["id"], &over["state"]), (&json!("receiver:chicago"), &json!("over")));
    assert!(over["ended"].is_string() && over["text"].as_str().unwrap().contains(" lost "), "{over}");
    assert_eq!((&lines(&folder.file("told"))[1], &posted.lock().unwrap()[2]), (over, over));
    // Nothing more comes.
    drop(coordinator);
    let coordinator = Coordinator::start(&hub, &options);
    assert_eq!(coordinator.alarms()["over"], json!([over]));
    thread::sleep(Duration::from_secs(4));
    assert_eq!((lines(&folder.file("told")).len(), posted.lock().unwrap().len()), (2, 3));
}

/// Waits until the diagnosis of the only alarm is so far. In the first two minutes of an hour nobody is asked.
fn diagnosis_that_is(coordinator: &Coordinator, progress: &str) -> Value {
    let begin = Instant::now();
    loop {
        let alarms = coordinator.alarms();
        let shown = &alarms["alarms"][0]["diagnosis"];
        if shown["progress"] == progress {
            return shown.clone();
        }
        assert!(begin.elapsed() < PATIENCE + Duration::from_secs(120), "it is not {progress}: {alarms}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_alarm_leads_to_its_diagnosis() {
    let folder = Folder::new("diagnosed");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle"]);
    let all = results(&sites, 24 * 10, |_, to, ago| if to == 2 && ago <= 10 { 60 } else { 0 });
    let hub = hub_of_all_kinds(&folder, &sites, &all, &[]);
    let coordinator = Coordinator::start(&hub, &[]);
    let asked = diagnosis_that_is(&coordinator, "asked");
    assert_eq!((&asked["receiver"], &asked["test"], &asked["why"]), (&json!("chicago"), &Value::Null, &Value::Null));
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    let wanted = archive.wanted(asked["sender"].as_str().unwrap(), 0).unwrap().remove(0);
    let schedule = coordinator.json("schedule");
    let due = json!([{ "asked": asked["asked"], "test": "why", "sender": asked["sender"], "receiver": "chicago" }]);
    assert_eq!(schedule["asked"], due, "{schedule}");

    // One of another alarm is none of this; then a site answers.
    let begun_ns = now_ns();
    let found = |number: u64, alarm: &str| Measurement {
        id: format!("{number:032x}"),
        test: "why".into(),
        sender: wanted.sender.clone(),
        receiver: wanted.receiver.clone(),
        at_ns: begun_ns,
        measured: Measured::Diagnose(diagnosis(alarm)),
    };
    archive.take_measurements(&[found(1, "1")]).unwrap();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(coordinator.alarms()["alarms"][0]["diagnosis"], asked);
    archive.take_measurements(&[found(2, &wanted.alarm)]).unwrap();
    let done = diagnosis_that_is(&coordinator, "done");
    assert_eq!(
        (&done["test"], &done["sender"], &done["asked"]),
        (&json!(found(2, "").id), &asked["sender"], &asked["asked"])
    );
    let [test, at] = ["test", "at"].map(|key| done[key].as_str().unwrap());
    assert_eq!(coordinator.json(&format!("tests/{test}?at={at}"))["result"]["kind"], "diagnose");
    assert_eq!(coordinator.json("schedule")["asked"], json!([]));
    drop(coordinator);
    let coordinator = Coordinator::start(&hub, &[]);
    assert_eq!(coordinator.alarms()["alarms"][0]["diagnosis"], done, "the next one knows it");
}

/// Runs a coordinator until it has judged that the alarm is gone. It waits two minutes for results that are on their way: the test puts its
/// file back by them.
fn gone_since_two_minutes(hub: &std::path::Path, options: &[&str]) {
    let file = hub.join("alarms.json");
    let read = || serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap();
    let coordinator = Coordinator::start(hub, options);
    let begin = Instant::now();
    while read()["receiver:chicago"]["gone_ns"].is_null() {
        assert!(begin.elapsed() < PATIENCE, "it is not gone: {}", read());
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((&coordinator.alarms()["alarms"], &coordinator.alarms()["over"]), (&json!([]), &json!([])));
    drop(coordinator);
    let mut known = read();
    let gone = known["receiver:chicago"]["gone_ns"].as_u64().unwrap();
    known["receiver:chicago"]["gone_ns"] = json!(gone - 120_000_000_000);
    fs::write(&file, known.to_string()).unwrap();
}
