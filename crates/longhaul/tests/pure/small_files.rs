//! Small files, as others may have made them, that stand for very much.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::process::{Command, Output};

use crate::common::captures::Folder;
use crate::common::{longhaul, object, root};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// The binary with `arguments`, in the memory that SECURITY.md names and ten seconds of CPU time, of which it should take one or two.
fn limited(arguments: &[&str]) -> Output {
    let mut limited = Command::new("prlimit");
    limited.args(["--as=536870912", "--cpu=10", env!("CARGO_BIN_EXE_longhaul")]).args(arguments);
    let output = limited.output().unwrap();
    let said = &output.stderr[..output.stderr.len().min(300)];
    assert!(output.status.success(), "{arguments:?}: {}, {}", output.status, String::from_utf8_lossy(said));
    output
}

/// A saved result of this kind, changed.
fn changed(kind: &str, change: impl FnOnce(&mut Value)) -> String {
    let text = fs::read_to_string(root().join("fuzz/corpus/saved_result").join(kind)).unwrap();
    let mut result: Value = serde_json::from_str(&text).unwrap();
    change(&mut result);
    result.to_string()
}

/// A pcap file without packets.
fn empty() -> Vec<u8> {
    [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].into_iter().flat_map(u32::to_le_bytes).collect()
}

fn packed(file: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(file).unwrap();
    packed.finish().unwrap()
}

/// A capture of SYNs, each of another client to one server.
fn syns(clients: u32) -> Vec<u8> {
    let mut file = empty();
    for client in 0..clients {
        let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &[0x45, 0, 0, 40]].concat();
        frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
        frame.extend((0x0b00_0000 + client).to_be_bytes());
        frame.extend([10, 0, 0, 2, 4, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0x50, 2, 0, 100, 0, 0, 0, 0]);
        for word in [1 + client / 100_000, client % 100_000 * 10, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// 10 MB of them, and all flows are asked for: the page has the first 300, and all is done in the memory that SECURITY.md names.
#[test]
fn a_page_of_very_many_flows_takes_little_memory() {
    let folder = Folder::new("many-flows");
    let (capture, page) = (folder.file("syns.pcap"), folder.file("page.html"));
    fs::write(&capture, syns(150_000)).unwrap();
    let mut limited = Command::new("prlimit");
    limited
        .arg("--as=536870912")
        .arg(env!("CARGO_BIN_EXE_longhaul"))
        .args(["analyze", "--top", "0", "--html", &page, &capture]);
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let count = |text: &str| text.matches(" - 10.0.0.2:2, ").count();
    assert_eq!(count(&text), 150_000, "{}", &text[..text.len().min(300)]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("150000 flows, the first 300\n") && page.len() < 2_000_000, "{}", page.len());
}

/// Few bytes can stand for very many flows: all are counted, and as many are told of as the file has room for.
#[test]
fn a_small_file_has_room_for_some_flows() {
    let folder = Folder::new("packed-flows");
    let capture = folder.file("syns.pcap.gz");
    let packed = packed(&syns(120_000));
    fs::write(&capture, &packed).unwrap();
    let room = 65_536 + packed.len() / 64;
    let output = longhaul(&["analyze", "--top", "0", &capture]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches(" - 10.0.0.2:2, ").count(), room, "of {} bytes", packed.len());
    assert!(text.contains(&format!("120000 flows, the first {room}\n")), "{:?}", text.lines().next());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("{} flows are left out", 120_000 - room)), "{said}");
}

/// A capture of connections, one after the other, each of another client that sends 24,000 bytes to one server. Payload is clipped.
fn connections(clients: u32) -> Vec<u8> {
    /// Microseconds, whether the client sends, its sequence number and the server's, flags, payload.
    const TALK: [(u32, bool, u32, u32, u8, u16); 8] = [
        (0, true, 0, 0, 0x02, 0),
        (1_000, false, 1, 0, 0x12, 0),
        (1_100, true, 1, 1, 0x10, 0),
        (2_000, true, 1, 1, 0x10, 8_000),
        (3_000, false, 8_001, 1, 0x10, 0),
        (20_000, true, 8_001, 1, 0x10, 8_000),
        (20_500, true, 16_001, 1, 0x10, 8_000),
        (22_000, false, 24_001, 1, 0x10, 0),
    ];
    let mut file = empty();
    for client in 0..clients {
        let (there, here) = ([&(0x0b00_0000 + client).to_be_bytes()[..], &[4, 0]].concat(), [10, 0, 0, 2, 0, 2]);
        for (at_us, sends, of_client, of_server, flags, payload) in TALK {
            let (from, to) = if sends { (&there[..], &here[..]) } else { (&here[..], &there[..]) };
            let (sequence, acknowledged) = if sends { (of_client, of_server) } else { (of_server, of_client) };
            let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &[0x45, 0]].concat();
            frame.extend((40 + payload).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([&from[..4], &to[..4], &from[4..], &to[4..]].concat());
            frame.extend([sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat());
            frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
            let (seconds, micros) = (1 + client / 20, client % 20 * 50_000 + at_us);
            for word in [seconds, micros, frame.len() as u32, frame.len() as u32 + u32::from(payload)] {
                file.extend(word.to_le_bytes());
            }
            file.extend(frame);
        }
    }
    file
}

/// As many are diagnosed as the file has room for, and it is said how many are not.
#[test]
fn a_small_file_has_room_for_some_diagnoses() {
    let folder = Folder::new("packed-connections");
    let capture = folder.file("connections.pcap.gz");
    let packed = packed(&connections(30_000));
    fs::write(&capture, &packed).unwrap();
    let room = 16_384 + packed.len() / 256;
    let output = longhaul(&["diagnose", "trace", "--top", "0", &capture]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let left_out = 30_000_usize.checked_sub(room).unwrap();
    assert!(said.contains(&format!("{left_out} connections are left out")), "of {} bytes: {said}", packed.len());
}

/// Two results have 50,000 caveats each, and half of them alike: each is told once, where it came first.
#[test]
fn very_many_caveats_are_told_once() {
    let folder = Folder::new("many-caveats");
    let written = |name: &str, numbers: Range<u32>| {
        let caveat = |number: u32| json!({"code": "late", "message": format!("by {number} ms"), "remedy": ""});
        let file = folder.file(name);
        fs::write(&file, changed("watch-udp", |result| result["caveats"] = numbers.map(caveat).collect())).unwrap();
        file
    };
    let (a, b) = (written("a.json", 0..50_000), written("b.json", 25_000..75_000));
    let compared = object(&limited(&["compare", "--json", &a, &b]).stdout);
    let late = compared["caveats"].as_array().unwrap().iter().filter(|caveat| caveat["code"] == "late");
    let messages: Vec<&str> = late.filter_map(|caveat| caveat["message"].as_str()).collect();
    assert_eq!(messages.len(), 75_000);
    assert!((0..).zip(messages).all(|(number, message)| message == format!("by {number} ms")));
}

/// Each point of a sweep has a pace of its own, and so a column.
#[test]
fn a_page_of_very_many_paces_is_drawn() {
    const POINTS: u64 = 6_000;
    const METRICS: [&str; 7] =
        ["lost", "received_bps", "reordered", "spacing_out_ns", "batch_out_packets", "receiver_cpu", "sender_cpu"];
    let folder = Folder::new("many-paces");
    let (saved, page) = (folder.file("sweep.json"), folder.file("page.html"));
    let point = |number: u64| {
        // Of two that differ there is a figure.
        let known = if number < 2 { METRICS.len() } else { 0 };
        let mean = json!({"mean": number as f64, "standard_error": null, "tests": 1});
        let means: Value = METRICS.iter().take(known).map(|metric| (*metric, mean.clone())).collect();
        let point = json!({"payload_bytes": 9, "pace": {"spacing_ns": (100 + number) * 1_000}});
        json!({"point": point, "tests": [], "means": means})
    };
    let points: Value = (0..POINTS).map(point).collect();
    let swept = changed("sweep", |result| result["result"] = json!({"points": points, "knees": []}));
    fs::write(&saved, swept).unwrap();
    limited(&["show", &saved, "--html", &page]);
    let page = fs::read_to_string(&page).unwrap();
    assert_eq!(page.matches("<title>9 bytes, each ").count(), 7 * POINTS as usize);
    assert_eq!(page.matches(">each 6099 µs</text>").count(), 7);
}

/// Dictionaries of 4.8 million texts without a letter. As many as unpack to 1 GiB took more than ten seconds, and some 100 kB of the file.
#[test]
fn a_small_table_of_losses_stands_for_few_texts() {
    let folder = Folder::new("packed-texts");
    let (saved, page) = (folder.file("result.json"), folder.file("page.html"));
    let stream = json!({"sent_packets": 1000, "lost_packets": 4, "first_sent_ns": 0, "last_sent_ns": 1_000_000_000});
    let tested = changed("udp", |result| {
        result["result"]["streams"] = json!([stream]);
        result["result"]["losses"] = json!([]);
        result["result"]["losses_file"] = json!("losses.parquet");
    });
    fs::write(&saved, tested).unwrap();
    let table = root().join("fuzz/corpus/mesh_test_file/texts_of_nothing");
    fs::copy(table, folder.file("losses.parquet")).unwrap();
    limited(&["show", &saved, "--html", &page]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("left out: losses.parquet: its pages unpack to 19200616 bytes"), "{} bytes", page.len());
}
