//! `longhaul diagnose --rtt`: a short path that stands for a long one.

use std::process::{Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use crate::common::{TestLab, longhaul, object};
use crate::watch::on;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::Program;
use serde_json::Value;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A round trip of 2 ms, and room for each burst of the test.
const NEAR: &str = "[[both]]\nrate = '100Mbit'\nqueue = '4MiB'\ndelay = '1ms'\n";
/// A window of 166 packets: CUBIC takes one loss in 8443 packets (RFC 9438 §5.1), 5 s at this rate.
const LONG: [&str; 4] = ["--rate", "20M", "--rtt", "100ms"];

/// Two hosts on a short path, with a server on one.
struct Near {
    _server: Program,
    lab: TestLab,
}

impl Near {
    fn up(name: &str) -> Option<Self> {
        let file = std::env::temp_dir().join(format!("longhaul-near-{name}-{}.toml", std::process::id()));
        fs::write(&file, NEAR).unwrap();
        let lab = TestLab::up(&format!("near-{name}"), file.to_str().unwrap());
        fs::remove_file(&file).unwrap();
        let lab = lab?;
        let server = on(&lab, "server", &[LONGHAUL, "serve"]).stderr(Stdio::null()).spawn().unwrap();
        Some(Self { _server: Program(server), lab })
    }

    fn set(&self, change: &str) {
        let set = longhaul(&["lab", "set", "--name", &self.lab.name, change]);
        assert!(set.status.success(), "{set:?}");
    }

    fn diagnose(&self, options: &[&str]) -> Output {
        let command = [&[LONGHAUL, "diagnose", "server", "-J"][..], &LONG, options].concat();
        // The server may not listen yet.
        let answers =
            || Some(on(&self.lab, "client", &command).output().unwrap()).filter(|it| it.status.code() != Some(1));
        for _ in 0..50 {
            if let Some(output) = answers() {
                return output;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("{:?}", on(&self.lab, "client", &command).output().unwrap());
    }
}

fn verdicts(whole: &Value) -> (&str, &str) {
    let word = |key: &str| whole["result"][key].as_str().unwrap_or_else(|| panic!("{whole:#}"));
    (word("run_length"), word("slow_start"))
}

#[test]
fn a_short_path_passes_or_fails_for_a_long_one() {
    let Some(near) = Near::up("verdict") else { return };
    let clean = object(&near.diagnose(&[]).stdout);
    assert_eq!(verdicts(&clean), ("pass", "pass"), "{clean:#}");
    let result = &clean["result"];
    assert_eq!((&result["losses"], &result["target"]["window_packets"]), (&0.into(), &166.into()), "{clean:#}");
    let (sent, needed) =
        (result["sent_packets"].as_u64().unwrap(), result["target"]["packets_to_pass"].as_u64().unwrap());
    // It stops when it knows.
    assert!((needed..needed * 3 / 2).contains(&sent), "{clean:#}");

    // 17 times the losses that CUBIC takes; on the short path nobody would notice them.
    near.set("forward.loss=random(0.2%)");
    let folder = std::env::temp_dir().join(format!("longhaul-near-{}", std::process::id()));
    let lossy = object(&near.diagnose(&["-o", folder.to_str().unwrap()]).stdout);
    assert_eq!(verdicts(&lossy).0, "fail", "{lossy:#}");
    assert!(lossy["result"]["sent_packets"].as_u64().unwrap() < needed, "{lossy:#}");
    let expected = lossy["result"]["expected_bps"].as_u64().unwrap();
    assert!((1_000_000..10_000_000).contains(&expected), "{lossy:#}");
    let shown = longhaul(&["show", folder.to_str().unwrap()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.starts_with("This path is not good enough for cubic at 20Mbit/s over 100ms"), "{shown}");
    fs::remove_dir_all(folder).unwrap();

    // The rate passes, and a window at twice the rate does not fit: it is 83 packets more than leave meanwhile.
    near.set("forward.loss=none");
    near.set("forward.queue=20p");
    near.set("forward.rate=21Mbit");
    let shallow = object(&near.diagnose(&["--time", "2s"]).stdout);
    assert_eq!(verdicts(&shallow), ("not_enough", "fail"), "{shallow:#}");
    assert!(shallow["result"]["bursts"][0]["lost_packets"].as_u64().unwrap() > 20, "{shallow:#}");
}

#[test]
fn an_interrupted_test_says_what_it_knows() {
    let Some(near) = Near::up("interrupted") else { return };
    near.diagnose(&["--time", "200ms"]);
    let command = [&[LONGHAUL, "diagnose", "server", "-J"][..], &["--rate", "20M", "--rtt", "500ms"]].concat();
    let mut running = on(&near.lab, "client", &command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It says the time that it needs before it sends.
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(running.stderr.take().unwrap());
    while !said.contains("packets, ") || !said.contains("losses") {
        assert_ne!(std::io::BufRead::read_line(&mut lines, &mut said).unwrap(), 0, "{said}");
    }
    assert!(said.contains("passing needs"), "{said}");
    Process::open(running.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let mut stdout = Vec::new();
    std::io::Read::read_to_end(&mut running.stdout.take().unwrap(), &mut stdout).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{said}");
    assert_eq!(verdicts(&object(&stdout)).0, "not_enough");
}
