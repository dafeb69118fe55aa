//! Captures of other programs: link types and times that a form has no room for.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use crate::common::captures::{Folder, json};
use longhaul_captures::pcap::{TIMES_NS, Writer};
use longhaul_captures::{CaptureReader, LinkType, Record, pcapng};
use serde_json::Value;

/// UDP from 10.0.0.1 to 10.0.0.2 with 4 bytes of payload, over IPv4.
const DATAGRAM: [u8; 32] =
    [0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];

fn record(at_ns: i64, link: LinkType, snippet: &[u8]) -> Record<'_> {
    Record { at_ns, link, frame_len: snippet.len() as u32, snippet, ..Record::default() }
}

/// The program's exit code, and the error that it printed as JSON.
fn refused(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul")).args(arguments).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// What cannot be looked into is named; where that is all, it is an error.
#[test]
fn link_types_are_looked_through_or_named() {
    let folder = Folder::new("links");
    let null = [&[2, 0, 0, 0][..], &DATAGRAM].concat();
    let files = [("null", LinkType::Null, &null[..]), ("other", LinkType::from_number(147), &DATAGRAM)];
    let [null, other] = files.map(|(name, link, snippet)| {
        let file = folder.file(&format!("{name}.pcap"));
        let mut writer = Writer::new(File::create(&file).unwrap(), link, 96).unwrap();
        (0..3).for_each(|n| writer.write(&record(n, link, snippet)).unwrap());
        file
    });
    let analysed = json(&["analyze", "--json", &null]);
    assert_eq!(
        (&analysed["result"]["totals"]["not_ip_packets"], &analysed["caveats"]),
        (&0.into(), &Value::Array(vec![]))
    );
    assert_eq!(analysed["result"]["flows"][0]["forward"]["payload_bytes"], 12);
    for arguments in [vec!["analyze", "--json", &other], vec!["compare", "--json", &other, &null]] {
        let (code, error) = refused(&arguments);
        assert_eq!((code, &error["error"]["code"]), (Some(1), &"unknown_link_type".into()), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("147"), "{error}");
    }
    let both = json(&["analyze", "--json", &null, &other]);
    assert_eq!(
        (&both["result"]["totals"]["not_ip_packets"], &both["caveats"][0]["code"]),
        (&3.into(), &"unknown_link_type".into())
    );
}

/// Of the year 2200: pcapng keeps the time, pcap has no room for it.
#[test]
fn a_time_that_a_form_has_no_room_for_is_refused() {
    let folder = Folder::new("times");
    let [from, pcapng, pcap] = ["from.pcapng", "to.pcapng", "to.pcap"].map(|name| folder.file(name));
    let at_ns = TIMES_NS.end() + 3_000_000_000_000_000_001;
    let mut interface = pcapng::Interface::default();
    interface.link = LinkType::RawIp;
    let mut writer = pcapng::Writer::new(File::create(&from).unwrap(), "a test", &[interface]).unwrap();
    writer.write(&record(at_ns, LinkType::RawIp, &DATAGRAM), "").unwrap();
    writer.into_inner().flush().unwrap();
    let (code, error) = refused(&["convert", "--json", &from, &pcap]);
    assert_eq!((code, &error["error"]["code"]), (Some(1), &"time".into()), "{error}");
    assert!(!fs::exists(&pcap).unwrap(), "nothing is left");
    json(&["convert", "--json", &from, &pcapng]);
    let mut reader = CaptureReader::new(File::open(&pcapng).unwrap()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().at_ns, at_ns);
}
