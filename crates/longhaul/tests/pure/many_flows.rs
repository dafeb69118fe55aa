//! A small capture with very many flows.

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::common::captures::Folder;
use crate::common::longhaul;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A capture of SYNs, each of another client to one server.
fn syns(clients: u32) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
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

/// 10 MB of them, and all flows are asked for: the page has the first thousand, and all is done in the memory that SECURITY.md names.
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
    assert!(page.contains("150000 flows, the first 1000"), "{}", page.len());
}

/// Few bytes can stand for very many flows: all are counted, and as many are told of as the file has room for.
#[test]
fn a_small_file_has_room_for_some_flows() {
    let folder = Folder::new("packed-flows");
    let capture = folder.file("syns.pcap.gz");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&syns(120_000)).unwrap();
    let packed = packed.finish().unwrap();
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
