//! What longhaul writes into a folder of another user, it writes there: links that wait for it lead nowhere.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::waiting::until;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::common::captures::Folder;
use crate::common::{is_watching, longhaul, printed, root};

/// Links with these names in `folder`, all to one file, which must stay as it is.
struct Planted {
    folder: String,
    victim: String,
}

impl Planted {
    fn new(folder: &Folder, name: &str, links: &[&str]) -> Self {
        let planted = Self { folder: folder.file(name), victim: folder.file("victim") };
        fs::create_dir_all(&planted.folder).unwrap();
        fs::write(&planted.victim, "mine").unwrap();
        for link in links {
            symlink(&planted.victim, planted.file(link)).unwrap();
        }
        planted
    }

    fn file(&self, name: &str) -> String {
        Path::new(&self.folder).join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(fs::read_to_string(&self.victim).unwrap(), "mine", "{}", self.folder);
        }
    }
}

fn capture() -> String {
    root().join("fuzz/corpus/header_log/tcp_and_udp").to_str().unwrap().to_owned()
}

#[test]
fn links_in_the_folder_of_a_result_are_replaced() {
    let folder = Folder::new("planted");
    let capture = capture();
    let links = [".writable", "result.part", "series.parquet", "delays.parquet"];
    let planted = Planted::new(&folder, "analyze", &links);
    printed(&["analyze", "-o", &planted.folder, &capture]);
    assert!(fs::symlink_metadata(planted.file("series.parquet")).unwrap().is_file());
    printed(&["show", &planted.folder]);
    let planted = Planted::new(&folder, "compare", &links);
    printed(&["compare", "-o", &planted.folder, &capture, &capture]);
    let planted = Planted::new(&folder, "convert", &["trace.pcapng.part"]);
    printed(&["convert", &capture, &planted.file("log.parquet"), "--keep-snippets"]);
    printed(&["convert", &planted.file("log.parquet"), &planted.file("trace.pcapng")]);
}

#[test]
fn links_in_the_folder_of_man_pages_are_replaced() {
    let folder = Folder::new("planted-man");
    let planted = Planted::new(&folder, "man", &["longhaul.1", "longhaul-lab-up.1"]);
    printed(&["man", &planted.folder]);
    for page in ["longhaul.1", "longhaul-lab-up.1"] {
        assert!(fs::symlink_metadata(planted.file(page)).unwrap().is_file());
        assert!(fs::read_to_string(planted.file(page)).unwrap().contains(".TH longhaul"));
    }
}

/// Nobody reads these pipes: a command that opened one would wait for ever.
#[test]
fn pipes_in_the_way_are_replaced_and_those_of_another_user_refused() {
    let folder = Folder::new("planted-pipes");
    let capture = capture();
    let pipe = |name: &str| {
        let path = folder.file(name);
        mkfifoat(CWD, &path, Mode::from_bits_truncate(0o600)).unwrap();
        path
    };
    let (series, key) = (pipe("series.parquet"), pipe("key"));
    printed(&["analyze", "-o", &folder.file(""), &capture]);
    assert!(fs::symlink_metadata(series).unwrap().is_file());
    assert!(!longhaul(&["key", "new", &key]).status.success());
    printed(&["key", "new", "--force", &key]);
    assert!(fs::symlink_metadata(key).unwrap().is_file());
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_CHOWN (run as root)");
        return;
    }
    let theirs = pipe("page.html");
    lchown(&theirs, Some(65_534), Some(65_534)).unwrap();
    let output = longhaul(&["analyze", "--html", &theirs, &capture]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("pipe of another user"), "{said}");
}

/// Nobody writes into these either.
#[test]
fn pipes_in_a_folder_that_is_read_are_refused() {
    let profile = &["profile"][..];
    let replay = &["lab", "run", "faults", "--replay"][..];
    for (command, name, expected) in [
        (profile, "samples.parquet", "not a regular file"),
        (profile, "probes-00000.parquet", "no capture"),
        (replay, "receive-buffer-80ms-1.json", "not a regular file"),
    ] {
        let folder = Folder::new(&format!("planted-read-{name}"));
        mkfifoat(CWD, folder.file(name), Mode::from_bits_truncate(0o600)).unwrap();
        let output = longhaul(&[command, &[folder.file("").as_str()]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{name}: {said}");
    }
}

#[test]
fn links_in_the_folder_of_a_spool_are_replaced() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_NET_RAW (run as root)");
        return;
    }
    let folder = Folder::new("planted-spool");
    let planted = Planted::new(&folder, "spool", &[".reserve"]);
    printed(&["capture", "lo", "-t", "50ms", "-o", &planted.folder]);
}

/// Runs longhaul, and does `change` while it runs: once it watches or captures.
fn while_running(folder: &Folder, args: &[&str], change: impl FnOnce()) {
    let said = folder.file("said");
    let stderr = fs::File::create(&said).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let mut child = command.args(args).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let pid = child.id();
    let text = || fs::read_to_string(&said).unwrap();
    until("it to begin", || is_watching(pid, pid) || text().contains("; Ctrl-C ends\n"));
    change();
    child.wait().unwrap();
    println!("{args:?}: {}", text());
}

/// Who may rename things in the folder above puts a link in the place of the folder that was named.
#[test]
fn a_page_goes_into_the_folder_of_the_start() {
    let folder = Folder::new("planted-later");
    let [named, moved, other] = ["named", "moved", "other"].map(|name| folder.file(name));
    fs::create_dir(&named).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(format!("{other}/page.html"), "mine").unwrap();
    while_running(&folder, &["watch", "--port", "9", "-t", "2s", "--html", &format!("{named}/page.html")], || {
        fs::rename(&named, &moved).unwrap();
        symlink(&other, &named).unwrap();
    });
    assert_eq!(fs::read_to_string(format!("{other}/page.html")).unwrap(), "mine");
    assert!(fs::read_to_string(format!("{moved}/page.html")).unwrap().contains("<html"));
}

/// Who owns the folder of a capture's file puts another spool, which he cannot read, in the place of the capture's own.
#[test]
fn a_capture_is_made_of_its_own_spool() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_NET_RAW (run as root)");
        return;
    }
    let folder = Folder::new("planted-swap");
    let [private, named, file] = ["private", "named", "named/x.pcapng"].map(|name| folder.file(name));
    fs::create_dir(&named).unwrap();
    while_running(&folder, &["capture", "lo", "-t", "2s", "-o", &private], || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"for root alone", "127.0.0.1:9").unwrap();
    });
    let holds = |path: &Path| fs::read(path).unwrap().windows(14).any(|bytes| bytes == b"for root alone");
    let spool = || fs::read_dir(&private).unwrap().map(|file| file.unwrap().path());
    assert!(spool().any(|file| holds(&file)));
    while_running(&folder, &["capture", "lo", "-t", "2s", "-w", &file], || {
        let own = fs::read_dir(&named).unwrap().next().unwrap().unwrap().path();
        fs::rename(&own, folder.file("moved")).unwrap();
        symlink(&private, &own).unwrap();
    });
    assert!(!holds(Path::new(&file)) && spool().count() > 0);
}

#[test]
fn a_link_of_another_user_is_not_followed() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_CHOWN (run as root)");
        return;
    }
    let folder = Folder::new("planted-links");
    let capture = capture();
    let planted = Planted::new(&folder, "html", &["page.html", "own.html"]);
    let (theirs, own) = (planted.file("page.html"), planted.file("own.html"));
    lchown(&theirs, Some(65_534), Some(65_534)).unwrap();
    let at_folder = folder.file("to-a-folder");
    symlink(&planted.folder, &at_folder).unwrap();
    lchown(&at_folder, Some(65_534), Some(65_534)).unwrap();
    let (with_slash, through) = (format!("{at_folder}/"), folder.file("own-to-theirs"));
    symlink(&at_folder, &through).unwrap();
    let commands: [&[&str]; 8] = [
        &["serve", "-D", "--bind", "127.0.0.1", "--no-auth", "--port", "0", "--logfile", &theirs],
        &["analyze", "--html", &theirs, &capture],
        &["compare", "--html", &theirs, &capture, &capture],
        &["analyze", "-o", &at_folder, &capture],
        &["analyze", "-o", &with_slash, &capture],
        &["analyze", "-o", &through, &capture],
        &["capture", "lo", "-t", "1ms", "-o", &at_folder],
        &["diagnose", "127.0.0.1", "-p", "1", "-R", "--write", &at_folder],
    ];
    for command in commands {
        let output = longhaul(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("symbolic link of another user"), "{command:?}: {said}");
    }
    drop(planted);
    // Who names a link of his own means what it points to.
    printed(&["analyze", "--force", "--html", &own, &capture]);
    assert!(fs::symlink_metadata(&own).unwrap().is_symlink());
    assert!(fs::read_to_string(folder.file("victim")).unwrap().contains("<html"));
}
