//! A small capture with very many flows.

use std::fs;
use std::process::Command;

use crate::common::captures::Folder;

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
