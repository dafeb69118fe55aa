//! What the tests of `longhaul diagnose HOST` see beside rates: marks in IP headers, disks, pauses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};

use longhaul_testing::no_judge;
use longhaul_testing::program::Program;
use serde_json::Value;

use crate::common::browser::{Browser, axe};
use crate::common::captures::Folder;
use crate::common::group::{Group, Limit};
use crate::common::page::{fits, same_pages};
use crate::common::{TestLab, longhaul, object};
use crate::watch::on;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// 20 Mbit/s and a round trip of 20 ms.
const PATH: &str = "[[both]]\nrate = '20Mbit'\nqueue = '64KiB'\ndelay = '10ms'\n";

/// Two hosts, and `longhaul serve` on one.
struct Served {
    _serve: Program,
    /// Kept open: what it says later has to go somewhere.
    _said: BufReader<ChildStderr>,
    lab: TestLab,
    folder: Folder,
}

impl Served {
    fn up(name: &str) -> Option<Self> {
        let folder = Folder::new(name);
        let path = folder.file("path.toml");
        fs::write(&path, PATH).unwrap();
        let lab = TestLab::up(name, &path)?;
        let mut serve = on(&lab, "server", &[LONGHAUL, "serve", "--no-auth", "--bind", "10.77.2.1"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(serve.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        Some(Self { _serve: Program(serve), _said: said, lab, folder })
    }

    fn client(&self, words: &[&str]) -> Value {
        let output = on(&self.lab, "client", &[&[LONGHAUL], words].concat()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        object(&output.stdout)
    }

    /// Whether the server's firewall took the rules.
    fn firewall(&self, rules: &[&str]) -> bool {
        let nft = |words: &str| on(&self.lab, "server", &["sh", "-c", words]).status().is_ok_and(|it| it.success());
        let chain = "nft add table ip box; nft add chain ip box way '{ type filter hook prerouting priority -150; }'";
        nft(chain) && rules.iter().all(|rule| nft(&format!("nft add rule ip box way {rule}")))
    }
}

/// Codes of the findings of a diagnosis that loads the path with little.
fn findings(served: &Served) -> Vec<String> {
    let whole = served.client(&["diagnose", "10.77.2.1", "--no-auth", "-J", "--rate", "20M", "-t", "5s", "--gentle"]);
    let findings = whole["result"]["findings"].as_array().unwrap_or_else(|| panic!("{whole:#}")).clone();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn marks_that_something_rewrites_on_the_way() {
    let Some(served) = Served::up("diagnose-marks") else { return };
    let udp = ["udp", "10.77.2.1", "--no-auth", "-J", "-S", "0x2a", "-k", "50", "-b", "2M", "--wire"];
    let arrived = |served: &Served| {
        let whole = served.client(&udp);
        let classes = whole["result"]["traffic_classes"].as_array().unwrap().clone();
        let of = |class: &Value| (class["traffic_class"].as_u64().unwrap(), class["packets"].as_u64().unwrap());
        classes.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(arrived(&served), [(0x2a, 50)]);
    let marks =
        |codes: Vec<String>| codes.into_iter().filter(|code| code == "ecn" || code == "dscp").collect::<Vec<_>>();
    assert_eq!(marks(findings(&served)), [""; 0]);
    if Command::new("nft").arg("--version").output().is_err()
        || !served.firewall(&["ip dscp set cs0", "ip ecn set not-ect"])
    {
        return longhaul_testing::skipped!("nft cannot rewrite packets here");
    }
    assert_eq!(arrived(&served), [(0, 50)]);
    assert_eq!(marks(findings(&served)), ["ecn", "dscp"]);
}

#[test]
fn disks_are_bounds_and_nothing_that_was_written_stays() {
    let Some(served) = Served::up("diagnose-disk") else { return };
    let (file, folder) = (served.folder.0.join("file"), served.folder.0.join("written"));
    fs::write(&file, vec![5; 3 << 20]).unwrap();
    fs::create_dir(&folder).unwrap();
    let diagnose = |words: &[&str]| {
        let common = ["diagnose", "10.77.2.1", "--no-auth", "-J", "--rate", "20M", "-t", "5s", "--gentle"];
        served.client(&[&common[..], words].concat())["result"].clone()
    };
    let disk = |result: &Value| {
        let all = [&result["bounds"], &result["causes"]].into_iter().flat_map(|it| it.as_array().unwrap().clone());
        let found = all.filter(|bound| bound["code"] == "disk").collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{result:#}");
        found[0]["host"].as_str().unwrap().to_owned()
    };
    let page = served.folder.0.join("page.html");
    let (saved, again) = (served.folder.file("saved"), served.folder.file("again.html"));
    let read = diagnose(&["--read", file.to_str().unwrap(), "--html", page.to_str().unwrap(), "-o", &saved]);
    assert!(longhaul(&["show", &saved, "--html", &again]).status.success());
    same_pages("diagnose", &fs::read_to_string(&page).unwrap(), &fs::read_to_string(again).unwrap());
    assert_eq!((disk(&read), &read["evidence"]["disks"][0]["bytes"]), ("sender".into(), &Value::from(3 << 20)));
    let written = diagnose(&["-R", "--write", folder.to_str().unwrap()]);
    assert_eq!(disk(&written), "receiver");
    assert!(written["evidence"]["disks"][0]["bytes"].as_u64() > Some(0), "{written:#}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let refused = on(&served.lab, "client", &[LONGHAUL, "diagnose", "10.77.2.1", "--no-auth", "--write", "/tmp"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    a_page_on_a_phone(&served.folder.0, page.to_str().unwrap(), &read);
}

/// The page in a browser as wide as a phone, and as a screen: a bar for each limit, as long as it is high, and nothing wider than the window.
fn a_page_on_a_phone(folder: &Path, page: &str, result: &Value) {
    let Some(mut browser) = Browser::start(folder) else { return };
    let axe = axe();
    for (width, mobile) in [(400, true), (1280, false)] {
        browser.open(&format!("file://{page}"), width, mobile);
        let seen = browser.evaluate(
            "[...document.querySelectorAll('g.bound')].map(bar => [bar.dataset.code, bar.getBoundingClientRect().width])",
        );
        let bars = seen.as_array().unwrap();
        assert!(bars.iter().any(|bar| bar[0] == "disk"), "{seen}");
        assert!(bars.len() >= result["bounds"].as_array().unwrap().len(), "{seen}");
        assert!(bars.iter().all(|bar| bar[1].as_f64() > Some(20.0)), "{width}: {seen}");
        let size = browser.evaluate("parseFloat(getComputedStyle(document.querySelector('g.bound text')).fontSize) * document.querySelector('svg.plot').getBoundingClientRect().width / document.querySelector('svg.plot').viewBox.baseVal.width");
        assert!(size.as_f64() > Some(8.0), "letters of {size} points at {width}");
        fits(&mut browser, page, width, axe.as_deref());
    }
}

/// Major and minor number of the disk with this file, as `8:0`; `None` where it is on no disk.
fn disk_of(file: &Path) -> Option<String> {
    let number = fs::metadata(file).ok()?.dev();
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let device = fs::canonicalize(device).ok()?;
    let disk = if device.join("partition").exists() { device.parent()? } else { &device };
    Some(fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned())
}

/// The program may read 1 MB/s of the disk: 8 of the 20 Mbit/s of the path.
#[test]
fn a_slow_disk_is_the_cause() {
    const LIMIT: &str = "1000000";
    let Some(served) = Served::up("diagnose-slow-disk") else { return };
    let file = served.folder.0.join("file");
    fs::write(&file, vec![5; 3 << 20]).unwrap();
    let limited = disk_of(&file).and_then(|disk| {
        let one = ("blkio", "blkio.throttle.read_bps_device", format!("{disk} {LIMIT}"));
        Group::new("slow-disk", &Limit { one, two: ("io.max", format!("{disk} rbps={LIMIT}")) })
    });
    let Some(group) = limited else {
        no_judge!("no control group can limit what is read of {}", file.display());
        return;
    };
    let words = ["diagnose", "10.77.2.1", "--no-auth", "-J", "--rate", "20M", "-t", "5s", "--gentle", "--read"];
    let words = [&[LONGHAUL][..], &words, &[file.to_str().unwrap()]].concat();
    let output = group.within(&on(&served.lab, "client", &words)).output().unwrap();
    let result = object(&output.stdout)["result"].clone();
    let cause = &result["causes"][0];
    assert_eq!((cause["code"].as_str(), cause["host"].as_str()), (Some("disk"), Some("sender")), "{result:#}");
    let bound = &cause["bound_bps"];
    let (least, most) = (bound["least"].as_u64().unwrap(), bound["most"].as_u64().unwrap());
    assert!(least < 8_000_000 && 8_000_000 < most, "{cause:#}");
}

#[test]
fn transfers_with_pauses_are_timed_one_by_one() {
    let Some(served) = Served::up("diagnose-pauses") else { return };
    let words =
        ["diagnose", "10.77.2.1", "--no-auth", "-J", "--rate", "20M", "-t", "5s", "--size", "100K", "--every", "500ms"];
    let result = served.client(&words)["result"].clone();
    let runs = result["evidence"]["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["purpose"] == "intervals").unwrap_or_else(|| panic!("{result:#}"));
    let times: Vec<u64> = run["transfers_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).collect();
    // Slow start needs some round trips of 20 ms for each, as each comes after a pause.
    // A receiver that a busy machine ran late read all or most of one at once: it has no time, or too short a one.
    let timed = times.iter().filter(|ns| **ns >= 20_000_000).count();
    assert!(times.len() >= 5 && timed >= 2 && times.iter().all(|ns| *ns < 450_000_000), "{times:?}");
    assert_eq!(run["transfer_bytes"], 100 << 10);
}
