//! Files below `/etc` that give settings again when the machine starts.
//!
//! **They win.** systemd-sysctl sorts all files of `sysctl.d` by name and the last one counts: `99-zz-longhaul.conf` comes after `99-sysctl.conf`. Of
//! `.link` files only the first that matches an interface counts: a file of its own would take the name policy and everything else of
//! `99-default.link` away, so settings of interfaces go into a drop-in of the file that udev took for the interface, mostly that one.
//!
//! Source: sysctl.d(5), systemd.link(5).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use longhaul_kernel::new_file::PUBLIC;
use longhaul_units::read_text;

use crate::outcome::{DropInNow, Outcome, Owner};
use crate::place::HostSetting;
use crate::state::{DropIn, Saved, write_through};

/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;
const HEAD: &str = "# Written by `longhaul tune --persist`; `longhaul tune undo` removes it.\n";
/// The file for kernel parameters.
const SYSCTL: &str = "sysctl.d/99-zz-longhaul.conf";
/// The file for interfaces.
const LINK: &str = "systemd/network";
const LINK_DROP_IN: &str = "50-longhaul.conf";
/// The `.link` file of interfaces that no other one matches.
const DEFAULT_LINK: &str = "99-default.link";
/// Where udev keeps what it knows of devices: interface 2 is `n2`.
const UDEV: &str = "/run/udev/data";

/// The files that make `settings` last, below `etc`, with their texts.
pub(crate) fn texts(etc: &Path, settings: &[Saved]) -> Vec<(PathBuf, String)> {
    texts_with(etc, settings, &link_file)
}

fn texts_with(etc: &Path, settings: &[Saved], link_file: &dyn Fn(&str) -> String) -> Vec<(PathBuf, String)> {
    let mut sysctl = String::new();
    // What each `.link` file gets.
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for saved in settings {
        let value = &saved.given;
        let mut give = |link: &str, line: String| _ = files.entry(link_file(link)).or_default().insert(line);
        match &saved.place {
            HostSetting::Sysctl { key } => _ = writeln!(sysctl, "{key} = {value}"),
            HostSetting::Feature { link, feature } => {
                link_key(feature).into_iter().for_each(|key| give(link, format!("{key}=yes")));
            }
            HostSetting::Ring { link, receive } => {
                give(link, format!("{}={value}", if *receive { "RxBufferSize" } else { "TxBufferSize" }));
            }
            HostSetting::QueueLength { link } => give(link, format!("TransmitQueueLength={value}")),
            // The default one is a kernel parameter, and is there before interfaces are. A route is its owner's to set up.
            HostSetting::RootQdisc { .. } | HostSetting::Route { .. } => {}
        }
    }
    let mut texts = Vec::new();
    if !sysctl.is_empty() {
        texts.push((etc.join(SYSCTL), format!("{HEAD}{sysctl}")));
    }
    for (file, lines) in files {
        let lines: Vec<String> = lines.into_iter().collect();
        let path = etc.join(LINK).join(format!("{file}.d")).join(LINK_DROP_IN);
        texts.push((path, format!("{HEAD}[Link]\n{}\n", lines.join("\n"))));
    }
    texts
}

/// The name of the `.link` file that udev took for the interface `link`: a drop-in of another one would do nothing.
fn link_file(link: &str) -> String {
    let read = |path: PathBuf| read_text(&path, MOST_BYTES).ok();
    let index = read(Path::new("/sys/class/net").join(link).join("ifindex"));
    let known = index.and_then(|index| read(Path::new(UDEV).join(format!("n{}", index.trim()))));
    known.as_deref().and_then(link_file_of).unwrap_or(DEFAULT_LINK).to_owned()
}

/// Of udev's lines: `E:ID_NET_LINK_FILE=/run/systemd/network/10-netplan-eth0.link`.
fn link_file_of(known: &str) -> Option<&str> {
    let path = known.lines().find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE="))?;
    path.rsplit('/').next().filter(|name| is_link_file(name))
}

fn is_link_file(name: &str) -> bool {
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.@:".contains(letter));
    name.ends_with(".link") && is_plain && name.len() < 200
}

/// It is one of those that [`texts`] names: a stored state may have been written by anybody who could write there, and has files removed.
pub(crate) fn is_known(etc: &Path, path: &Path) -> bool {
    let link_file = || {
        let below = path.strip_prefix(etc.join(LINK)).ok()?.to_str()?;
        below.strip_suffix(LINK_DROP_IN)?.strip_suffix(".d/")
    };
    path == etc.join(SYSCTL) || link_file().is_some_and(is_link_file)
}

/// Where systemd-sysctl looks for files beside `/etc/sysctl.d` (sysctl.d(5)).
const SYSCTL_FOLDERS: [&str; 4] = ["/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];
/// Files of a folder that are looked at, at most.
const MOST_FILES: usize = 1000;

/// Files that give one of `keys` after longhaul's drop-in, so that it does not win: those whose names come later, and `sysctl.conf`, which
/// procps' `sysctl --system` reads last.
pub(crate) fn later(etc: &Path, keys: &BTreeSet<String>) -> Vec<(PathBuf, String)> {
    let own = SYSCTL.rsplit('/').next().unwrap_or(SYSCTL);
    let mut files = vec![etc.join("sysctl.conf")];
    for folder in std::iter::once(etc.join("sysctl.d")).chain(SYSCTL_FOLDERS.map(PathBuf::from)) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES);
        let mut later: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".conf") && name > own))
            .map(|entry| entry.path())
            .collect();
        later.sort();
        files.extend(later);
    }
    let mut found = Vec::new();
    for file in files {
        let text = read_text(&file, MOST_BYTES).unwrap_or_default();
        let given = text.lines().filter_map(sysctl_key).filter(|key| keys.contains(key));
        found.extend(given.map(|key| (file.clone(), key)));
    }
    found
}

/// The parameter that a line of `sysctl.d` sets: `net/ipv4/tcp_rmem = 1` and `-net.ipv4.tcp_rmem = 1` are `net.ipv4.tcp_rmem`.
fn sysctl_key(line: &str) -> Option<String> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, _) = line.split_once('=')?;
    Some(key.trim().trim_start_matches('-').replace('/', "."))
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
                let is_of_link =
                    |folder: &&Path| folder.extension().is_some_and(|end| end == "d") && !folder.ends_with("sysctl.d");
                if let Some(folder) = drop_in.path.parent().filter(is_of_link) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(place: HostSetting, given: &str) -> Saved {
        Saved { place, before: "0".into(), given: given.into(), ours: Vec::new() }
    }

    /// netplan writes a `.link` file for an interface: a drop-in of 99-default.link would not count there.
    #[test]
    fn settings_of_an_interface_go_to_the_file_that_udev_took_for_it() {
        let known = "I:123\nE:ID_NET_LINK_FILE=/run/systemd/network/10-netplan-eth1.link\nE:ID_NET_NAME=eth1\n";
        assert_eq!(link_file_of(known), Some("10-netplan-eth1.link"));
        assert_eq!(link_file_of("E:ID_NET_LINK_FILE=/x/..\n").or(link_file_of("E:ID_NET_NAME=eth1\n")), None);
        let feature = |link: &str| HostSetting::Feature { link: link.into(), feature: "rx-gro".into() };
        let ring = HostSetting::Ring { link: "eth1".into(), receive: true };
        let settings = [saved(feature("eth0"), "on"), saved(feature("eth1"), "on"), saved(ring, "4096")];
        let file = |link: &str| if link == "eth1" { "10-netplan-eth1.link" } else { DEFAULT_LINK }.to_owned();
        let texts = texts_with(Path::new("/etc"), &settings, &file);
        let texts: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.to_str().unwrap(), text.strip_prefix(HEAD).unwrap())).collect();
        assert_eq!(
            texts,
            [
                (
                    "/etc/systemd/network/10-netplan-eth1.link.d/50-longhaul.conf",
                    "[Link]\nGenericReceiveOffload=yes\nRxBufferSize=4096\n"
                ),
                ("/etc/systemd/network/99-default.link.d/50-longhaul.conf", "[Link]\nGenericReceiveOffload=yes\n"),
            ]
        );
    }

    #[test]
    fn what_is_written_is_known_and_nothing_else() {
        let etc = Path::new("/etc");
        let settings = [
            saved(HostSetting::sysctl("net.core.rmem_max"), "1"),
            saved(HostSetting::QueueLength { link: "e0".into() }, "1"),
        ];
        for file in [DEFAULT_LINK, "10-netplan-e0.link"] {
            let texts = texts_with(etc, &settings, &|_: &str| file.to_owned());
            assert_eq!(texts.len(), 2, "{texts:?}");
            assert!(texts.iter().all(|(path, _)| is_known(etc, path)), "{texts:?}");
            assert!(!texts.iter().any(|(path, _)| is_known(Path::new("/other"), path)), "{texts:?}");
        }
        for path in [
            "/etc/passwd",
            "/etc/sysctl.d/10-site.conf",
            "/etc/sysctl.d/../sysctl.d/99-zz-longhaul.conf",
            "/etc/systemd/network/10-eth0.link",
            "/etc/systemd/network/10-eth0.network.d/50-longhaul.conf",
            "/etc/systemd/network/10-eth0.link.d/other.conf",
            "/etc/systemd/network/../../tmp/10-eth0.link.d/50-longhaul.conf",
            "etc/sysctl.d/99-zz-longhaul.conf",
        ] {
            assert!(!is_known(etc, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_file_that_comes_later_is_found() {
        let etc = std::env::temp_dir().join(format!("longhaul-tune-later-{}", std::process::id()));
        fs::create_dir_all(etc.join("sysctl.d")).unwrap();
        fs::write(etc.join("sysctl.d/99-sysctl.conf"), "net.core.rmem_max = 1\n").unwrap();
        fs::write(etc.join("sysctl.d/zz-site.conf"), "# net.core.rmem_max = 1\n-net/core/wmem_max=1\n").unwrap();
        fs::write(etc.join("sysctl.conf"), "net.core.rmem_max=1\nkernel.sysrq = 1\n").unwrap();
        let keys = ["net.core.rmem_max", "net.core.wmem_max"].map(str::to_owned).into();
        let found = later(&etc, &keys);
        let expected = [
            (etc.join("sysctl.conf"), "net.core.rmem_max".to_owned()),
            (etc.join("sysctl.d/zz-site.conf"), "net.core.wmem_max".to_owned()),
        ];
        fs::remove_dir_all(&etc).unwrap();
        assert_eq!(found, expected);
    }
}
