//! What a user gets wrong is answered in one line that names the key or flag, the value and what is allowed; with `--json` as
//! one object too. Nothing is left behind.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::common::captures::Folder;
use crate::common::{TestLab, longhaul, object, root};
use longhaul_kernel::capability::is_root_in_namespace;

/// A path file with this text; gone with the value.
struct PathFile(PathBuf);

impl PathFile {
    fn new(name: &str, text: &str) -> Self {
        let file = std::env::temp_dir().join(format!("longhaul-{}-{name}.toml", std::process::id()));
        fs::write(&file, text).unwrap();
        Self(file)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for PathFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// That `arguments` are refused with `exit` and one line that has all of `parts`, and with `--json` with the same in an object.
fn refused(arguments: &[&str], exit: i32, parts: &[&str]) {
    let output = longhaul(arguments);
    let line = the_line(arguments, &output, exit);
    for part in parts {
        assert!(line.contains(part), "{arguments:?} does not say `{part}`: {line}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");

    // Before `--`, where the rest is another program's.
    let at = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    let mut with_json = arguments.to_vec();
    with_json.insert(at, "--json");
    let output = longhaul(&with_json);
    let said = object(&output.stdout);
    assert_eq!(said["schema"], "longhaul.error/1", "{said}");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(said["error"]["code"].as_str().is_some_and(|code| !code.is_empty()), "{said}");
    let whole = format!("{message} {}", said["error"]["remedy"].as_str().unwrap());
    // A command that has no result to print as JSON refuses to be asked for it.
    if whole.contains("unexpected argument '--json'") {
        the_line(&with_json, &output, 2);
        return;
    }
    the_line(&with_json, &output, exit);
    for part in parts {
        assert!(whole.contains(part), "{with_json:?} does not say `{part}`: {said}");
    }
}

fn the_line(arguments: &[&str], output: &Output, exit: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    assert!(text.starts_with("longhaul: "), "{arguments:?}: {text}");
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {text}");
    text
}

#[test]
fn path_files_that_are_none() {
    let cases: [(&str, &str, &[&str]); 14] = [
        ("unknown-key", "[[both]]\ndelya = '5ms'", &["both[0]", "delya", "delay"]),
        ("unknown-table", "[[forwards]]\ndelay = '5ms'", &["forwards", "forward"]),
        ("bad-unit", "[[both]]\ndelay = '5 parsec'", &["both[0].delay", "5 parsec", "ms"]),
        ("bad-rate", "[[both]]\nrate = 'fast'", &["both[0].rate", "fast"]),
        ("negative", "[[both]]\ndelay = '-5ms'", &["both[0].delay", "-5ms"]),
        ("nan", "[[both]]\nloss = { random = nan }", &["both[0].loss", "nan"]),
        ("nan-text", "[[both]]\nloss = { random = 'NaN' }", &["both[0].loss", "NaN"]),
        ("too-likely", "[[both]]\nloss = { random = '101%' }", &["both[0].loss", "101%", "100%"]),
        ("negative-loss", "[[both]]\nloss = { random = -0.5 }", &["both[0].loss", "-0.5"]),
        ("never", "[[both]]\nloss = { every = 0 }", &["both[0].loss", "0"]),
        ("too-long", "[[both]]\ndelay = '1h'", &["both[0].delay", "10"]),
        ("small-mtu", "[[client]]\nmtu = 50", &["client[0].mtu", "50", "68"]),
        ("large-mtu", "[[client]]\nmtu = 70000", &["client[0].mtu", "70000", "65535"]),
        ("no-toml", "[[both]\ndelay = ", &[":1:"]),
    ];
    for (name, text, parts) in cases {
        let file = PathFile::new(name, text);
        let parts: Vec<&str> = parts.iter().copied().chain([file.name()]).collect();
        refused(&["lab", "up", file.name(), "--name", "never"], 2, &parts);
        refused(&["emulate", "--left", "lo", "--right", "lo2", "--path", file.name()], 2, &parts);
        refused(&["paths", "show", file.name()], 2, &parts);
    }
    assert!(!String::from_utf8(longhaul(&["lab", "list"]).stdout).unwrap().contains("never"));
}

#[test]
fn paths_that_are_not_there() {
    refused(&["lab", "up", "nlr-smal"], 2, &["nlr-smal", "nlr-small"]);
    refused(&["lab", "up", "qwertzuiop"], 2, &["qwertzuiop", "tokyo"]);
    refused(&["paths", "show", "tokio"], 2, &["tokio", "tokyo"]);
    refused(&["lab", "up", "./no/such.toml"], 2, &["./no/such.toml"]);
    refused(&["emulate", "--left", "a", "--right", "b", "--path", "nlr-tini"], 2, &["nlr-tini", "nlr-tiny"]);
}

#[test]
fn flags_with_values_that_are_not_allowed() {
    let up = |flag: &'static str, value: &'static str| vec!["lab", "up", "lan", "--name", "never", flag, value];
    let cases: [(&str, &str, &[&str]); 17] = [
        ("--mtu", "65536", &["65535"]),
        ("--mtu", "67", &["68"]),
        ("--mtu", "-1", &[]),
        ("--mtu", "many", &[]),
        ("--seed", "1.5", &[]),
        ("--batch-time", "5 weeks", &[]),
        ("--batch-time", "-1us", &[]),
        ("--batch-time", "1h", &["1s"]),
        ("--seed", "-1", &[]),
        ("--lateness-bound", "-1ms", &[]),
        ("--memory", "1Z", &[]),
        ("--realtime", "100", &["99"]),
        ("--offload", "maybe", &["on", "off"]),
        ("--segmentation", "none", &["auto", "wire"]),
        ("--cpu", "first", &[]),
        ("--set", "delay", &["KEY=VALUE"]),
        ("--set", "loss=sometimes", &["loss", "every(N)"]),
    ];
    for (flag, value, more) in cases {
        let parts: Vec<&str> = [flag, value].into_iter().chain(more.iter().copied()).collect();
        refused(&up(flag, value), 2, &parts);
    }
    refused(&["lab", "up", "lan", "--set", "hop9.delay=1ms"], 2, &["--set", "hop9", "switch"]);
    refused(&["lab", "up", "lan", "--name", "a/b"], 2, &["a/b", "letters"]);
    refused(&["lab", "up", "lan", "--name", ""], 2, &["letters"]);
    refused(&["lab", "up"], 2, &["<PATH>"]);
    refused(&["lab", "run", "nlr-tcp", "--share-cpus", "--cpu", "1"], 2, &["--share-cpus", "--cpu"]);
    refused(&["lab", "run", "faults", "--share-cpus"], 2, &["--share-cpus is not for `lab run faults`"]);
    refused(&["lab", "run", "nima", "--share-cpus"], 2, &["--share-cpus is not for experiments with a mix"]);
    refused(&["lab", "upp", "lan"], 2, &["upp", "up"]);
    refused(&["labb"], 2, &["labb", "lab"]);
}

#[test]
fn words_that_are_no_command_or_option() {
    refused(&["upd", "host"], 2, &["'upd'", "'udp'", "see longhaul --help"]);
    refused(&["lab", "stauts"], 2, &["'stauts'", "'status'", "see longhaul lab --help"]);
    refused(&["tcp", "host", "--tiem", "3s"], 2, &["'--tiem'", "'--time'", "see longhaul tcp --help"]);
    refused(&["diagnose", "trace"], 2, &["<FILE|DIR>", "see longhaul diagnose trace --help"]);
    refused(&["diagnose"], 2, &["see longhaul diagnose --help"]);
    refused(&["diagnose", "host", "--watch", "1"], 2, &["--watch"]);
    refused(&["diagnose", "-R", "--", "true"], 2, &["--reverse"]);
}

#[test]
fn udp_tests_that_make_no_sense() {
    let udp = |arguments: &[&'static str]| [&["udp", "localhost", "-4", "--no-auth"], arguments].concat();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--softirq", "maybe"], &["--softirq", "maybe", "same", "split"]),
        (&["--softirq", "same", "-A", "0,1,0"], &["--softirq same", "one CPU"]),
        (&["--softirq", "split", "-A", "0,1,1"], &["--softirq split", "different"]),
        (&["-A", "0,1,0,1"], &["-A 0,1,0,1", "one CPU each"]),
        (&["-A", "first"], &["--affinity", "first"]),
        (&["--timestamps", "wall"], &["--timestamps", "wall", "kernel"]),
        (&["--collect", "some"], &["--collect", "some", "counters"]),
        (&["-i", "1ms"], &["-i", "1ms", "100ms"]),
        (&["-l", "10"], &["-l", "10", "18"]),
    ];
    for (arguments, parts) in cases {
        refused(&udp(arguments), 2, parts);
    }
    refused(&udp(&["-o", "/proc/nowhere"]), 1, &["-o", "/proc/nowhere", "folder"]);
    refused(&udp(&["-p", "9", "-t", "1"]), 1, &["127.0.0.1:9", "longhaul serve"]);
    refused(&["show", "/no/such/result"], 1, &["/no/such/result"]);
    refused(&["serve", "--bind", "192.0.2.1", "--no-auth"], 1, &["192.0.2.1:5210", "an address of this host"]);
    refused(&["host", "nosuch0"], 1, &["no interface nosuch0", "lo"]);
}

/// A result whose command draws none, one of an older version, and one whose table is another file.
#[test]
fn pages_of_results_that_lack_what_is_drawn() {
    let folder = Folder::new("lacking");
    let page = folder.file("page.html");
    let corpus = |name: &str| root().join("fuzz/corpus/saved_result").join(name);
    let of_watch_udp = corpus("watch-udp");
    let shown = ["show", of_watch_udp.to_str().unwrap(), "--html", &page];
    refused(&shown, 1, &["longhaul watch --udp", "no page", "omit --html"]);

    let old = root().join("crates/longhaul/tests/udp-result.json");
    let old = ["show", old.to_str().unwrap(), "--html", &page];
    assert!(longhaul(&old).status.success());
    let drawn = fs::read_to_string(&page).unwrap();
    assert!(drawn.contains("Packets over time are left out: the result does not say when packets left"), "{drawn}");
    assert!(drawn.contains("<dt>Packets lost</dt>") && !drawn.contains("<figure data-figure="), "{drawn}");
    refused(&old, 1, &["page.html", "--force"]);

    // Of an account that names a file elsewhere as its samples.
    fs::write(folder.file("samples.parquet"), "not a table").unwrap();
    fs::create_dir(folder.file("saved")).unwrap();
    let watched = fs::read_to_string(corpus("watch")).unwrap();
    for (name, why) in [("../samples.parquet", "no name of a table"), ("samples.parquet", "No such file")] {
        fs::write(folder.file("saved/result.json"), watched.replace("samples.parquet", name)).unwrap();
        let output = longhaul(&["report", &folder.file("saved"), "--html", &page, "--force"]);
        assert!(output.status.success(), "{output:?}");
        let drawn = fs::read_to_string(&page).unwrap();
        assert!(drawn.contains(&format!("Figures over time are left out: {name}: {why}")), "{drawn}");
        assert!(drawn.contains("TCP connections of ./longhaul tcp 127.0.0.1"), "{drawn}");
    }
}

#[test]
fn interfaces_that_are_not_there() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
        return;
    }
    refused(&["emulate", "--left", "nosuch0", "--right", "nosuch1", "--path", "lan"], 1, &["nosuch0"]);
    refused(&["emulate", "--left", "lo", "--right", "nosuch1", "--path", "lan"], 1, &["nosuch1"]);
    refused(&["emulate", "--left", "lo", "--right", "lo", "--path", "lan"], 2, &["--right", "lo"]);
    refused(&["emulate", "--left", "lo,lo2", "--right", "lo3", "--path", "lan"], 2, &["--left", "lo,lo2", "1"]);
    refused(&["emulate", "--left", "lo", "--path", "lan"], 2, &["--right"]);
    refused(&["emulate", "--left", "lo", "--right", "", "--path", "lan"], 2, &["--right", "1 to 15"]);
    refused(&["emulate", "--left", "sixteen-letters-", "--right", "lo", "--path", "lan"], 2, &["--left", "1 to 15"]);
    refused(
        &["emulate", "--left", "lo", "--right", "lo2", "--path", "tokyo", "--memory", "1MiB"],
        1,
        &["--memory", "1MiB"],
    );
}

#[test]
fn labs_that_are_not_there_or_are_there_already() {
    refused(&["lab", "down", "--name", "nosuch"], 1, &["nosuch"]);
    refused(&["lab", "status", "--name", "nosuch"], 1, &["nosuch"]);
    refused(&["lab", "set", "delay=1ms", "--name", "nosuch"], 1, &["nosuch"]);
    refused(&["lab", "exec", "client", "--name", "nosuch", "--", "true"], 1, &["nosuch"]);
    let Some(lab) = TestLab::up("bad-input", "lan") else { return };
    let name = lab.name.as_str();
    refused(&["lab", "up", "lan", "--name", name], 1, &[name, "--name"]);
    refused(&["lab", "exec", "clinet", "--name", name, "--", "true"], 2, &["clinet", "client", "server"]);
    refused(&["lab", "exec", "client", "--name", name, "--", "/no/such/program"], 1, &["/no/such/program"]);
    refused(&["lab", "set", "--name", name, "delay=1year"], 1, &["delay", "1year"]);
    refused(&["lab", "set", "--name", name, "forward.delai=1ms"], 1, &["delai", "delay"]);
    refused(&["lab", "set", "--name", name, "hop7.delay=1ms"], 1, &["hop7", "switch"]);
    refused(&["lab", "set", "--name", name, "delay=1ms", "loss=random(2)"], 1, &["loss", "2"]);
    // None of the changes was made.
    let path = String::from_utf8(longhaul(&["lab", "status", "--name", name, "--json"]).stdout).unwrap();
    assert!(path.contains("50us") && !path.contains("1ms"), "{path}");
    // The lab goes on.
    assert!(longhaul(&["lab", "exec", "client", "--name", name, "--", "ping", "-c", "1", "server"]).status.success());
}

/// More memory than the machine has.
#[test]
fn a_path_that_does_not_fit() {
    let file = PathFile::new("huge", "name = 'huge'\n[[both]]\nrate = '10Tbit'\ndelay = '10s'");
    refused(&["lab", "up", file.name(), "--name", "never-huge"], 1, &["memory"]);
    refused(&["lab", "up", "tokyo", "--memory", "1MiB", "--name", "never-huge"], 1, &["--memory", "1MiB"]);
    assert!(!String::from_utf8(longhaul(&["lab", "list"]).stdout).unwrap().contains("never"));
}
