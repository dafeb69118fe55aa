//! Captures of many files, and files that are nearly all holes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use longhaul_captures::Record;
use longhaul_captures::spool::{Interface, Kind, Meta, PacketBlock, control_block, tick_block};

use crate::common::captures::{Folder, missing};
use crate::common::{longhaul, object};

/// A file of a spool, with a packet.
fn file(number: u32, at_ns: i64) -> Vec<u8> {
    let meta = Meta { file: number, interfaces: vec![Interface::default()], ..Meta::default() };
    let mut block = PacketBlock::with_capacity(4096);
    block.push(&Record { at_ns, frame_len: 60, gso_segs: 1, snippet: &[0; 60], ..Record::default() });
    let mut bytes = control_block(Kind::Meta, 0, &meta);
    bytes.extend_from_slice(block.finish());
    bytes.extend(tick_block(i64::MAX));
    bytes.extend(control_block(Kind::End, 0, &()));
    bytes
}

/// A spool of fifty files, and fifty spools of one, by a process that may open thirty.
#[test]
fn few_files_are_open_at_once() {
    if missing("prlimit") {
        return;
    }
    let folder = Folder::new("many-files");
    for number in 1..=50 {
        let (long, short) = (folder.file("captures/long"), folder.file(&format!("captures/short-{number}")));
        fs::create_dir_all(&long).unwrap();
        fs::create_dir_all(&short).unwrap();
        fs::write(format!("{long}/{number:08}.spool"), file(number, 2 * i64::from(number))).unwrap();
        fs::write(format!("{short}/00000001.spool"), file(1, 2 * i64::from(number) + 1)).unwrap();
    }
    for command in [["analyze", "--json"].as_slice(), &["convert", "--json"]] {
        let mut limited = Command::new("prlimit");
        limited.args(["--nofile=30", env!("CARGO_BIN_EXE_longhaul")]).args(command).arg(folder.file("captures"));
        if command[0] == "convert" {
            limited.arg(folder.file("all.pcapng"));
        }
        let output = limited.output().unwrap();
        let said = object(&output.stdout);
        assert!(output.status.success(), "{said}");
        let packets = [&said["result"]["totals"]["packets"], &said["result"]["packets"]];
        assert!(packets.iter().any(|packets| **packets == 100), "{said}");
        assert_eq!(said["caveats"].as_array().map(Vec::len), Some(0), "{said}");
    }
}

/// A terabyte in some kilobytes, which would take hours to read.
#[test]
fn files_of_holes_are_refused() {
    let folder = Folder::new("holes");
    for name in ["holes.pcap", "holes.pcapng", "holes.parquet"] {
        let path = folder.file(name);
        let file = File::create(&path).unwrap();
        file.write_all_at(b"PAR1", 0).unwrap();
        file.set_len(1 << 40).unwrap();
        let written = folder.file("written.pcapng");
        for arguments in [
            &["analyze", "--json", &path][..],
            &["compare", "--json", &path, &path],
            &["convert", "--json", &path, &written],
            &["profile", "--json", &path],
        ] {
            let output = longhaul(arguments);
            let said = object(&output.stdout);
            assert_eq!((output.status.code(), said["error"]["code"].as_str()), (Some(1), Some("not_read")), "{said}");
            assert!(said["error"]["message"].as_str().unwrap().contains("it is mostly holes"), "{said}");
        }
    }
}
