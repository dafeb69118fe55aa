//! Files below `/etc` that give settings again when the machine starts.
//!
//! **They win.** systemd-sysctl sorts all files of `sysctl.d` by name and the last one counts: `99-zz-longhaul.conf` comes after `99-sysctl.conf`. Of
//! `.link` files only the first that matches an interface counts: a file of its own would take the name policy and everything else of
//! `99-default.link` away, so settings of interfaces go into a drop-in of that one.
//!
//! Source: sysctl.d(5), systemd.link(5).

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use longhaul_kernel::new_file::PUBLIC;
use longhaul_units::read_text;

use crate::outcome::{DropInNow, Outcome, Owner};
use crate::place::Place;
use crate::state::{DropIn, Saved, write_through};

/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;
const HEAD: &str = "# Written by `longhaul tune --persist`; `longhaul tune undo` removes it.\n";
/// The file for kernel parameters.
const SYSCTL: &str = "sysctl.d/99-zz-longhaul.conf";
/// The file for interfaces.
const LINK: &str = "systemd/network/99-default.link.d/50-longhaul.conf";

/// The files that make `settings` last, below `etc`, with their texts.
pub(crate) fn texts(etc: &Path, settings: &[Saved]) -> Vec<(PathBuf, String)> {
    let (mut sysctl, mut link) = (String::new(), Vec::new());
    for saved in settings {
        let value = &saved.given;
        match &saved.place {
            Place::Sysctl { key } => _ = writeln!(sysctl, "{key} = {value}"),
            Place::Feature { feature, .. } => link.extend(link_key(feature).map(|key| format!("{key}=yes"))),
            Place::Ring { receive, .. } => {
                link.push(format!("{}={value}", if *receive { "RxBufferSize" } else { "TxBufferSize" }));
            }
            Place::QueueLength { .. } => link.push(format!("TransmitQueueLength={value}")),
            // The default one is a kernel parameter, and is there before interfaces are.
            Place::RootQdisc { .. } => {}
        }
    }
    link.sort();
    link.dedup();
    let mut texts = Vec::new();
    if !sysctl.is_empty() {
        texts.push((etc.join(SYSCTL), format!("{HEAD}{sysctl}")));
    }
    if !link.is_empty() {
        texts.push((etc.join(LINK), format!("{HEAD}[Link]\n{}\n", link.join("\n"))));
    }
    texts
}

/// systemd.link(5)'s name of a feature.
fn link_key(feature: &str) -> Option<&'static str> {
    Some(match feature {
        "rx-gro" => "GenericReceiveOffload",
        "tx-generic-segmentation" => "GenericSegmentationOffload",
        "tx-tcp-segmentation" => "TCPSegmentationOffload",
        "tx-tcp6-segmentation" => "TCP6SegmentationOffload",
        _ => return None,
    })
}

/// Writes a drop-in through to the disk.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    write_through(path, text.as_bytes(), PUBLIC)
}

/// Removes a drop-in that is still what longhaul wrote.
pub(crate) fn remove(drop_in: &DropIn) -> (Outcome, Option<String>) {
    match now(drop_in).owner {
        Owner::Before => (Outcome::WasBefore, None),
        Owner::Other => (Outcome::Left, None),
        Owner::Longhaul => match fs::remove_file(&drop_in.path) {
            Ok(()) => {
                // A folder for drop-ins that has none left; /etc/sysctl.d is there anyway.
                if let Some(folder) = drop_in.path.parent().filter(|folder| folder.ends_with("99-default.link.d")) {
                    let _ = fs::remove_dir(folder);
                }
                (Outcome::PutBack, None)
            }
            Err(error) => (Outcome::Failed, Some(error.to_string())),
        },
    }
}

/// Whether it is there, and longhaul's.
pub(crate) fn now(drop_in: &DropIn) -> DropInNow {
    let owner = match read_text(&drop_in.path, MOST_BYTES) {
        Ok(text) if drop_in.ours.contains(&text) => Owner::Longhaul,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Owner::Before,
        _ => Owner::Other,
    };
    DropInNow { file: drop_in.path.display().to_string(), owner }
}
