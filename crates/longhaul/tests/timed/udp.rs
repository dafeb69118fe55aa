//! `longhaul udp` between the hosts of a lab, as users run it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::page::same_pages;
use crate::common::{TestLab, alone, longhaul, object, root, side_by_side};
use longhaul_bpf::support::not_built;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::{Program, copy_program};
use longhaul_testing::waiting::until;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::Value;

/// Where a lab's server has its RPS mask.
const MASK: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";

/// A lab whose server answers tests.
struct Tested {
    server: Program,
    lab: TestLab,
}

impl Tested {
    fn up(name: &str, path: &str) -> Option<Self> {
        Self::with_server(name, path, &[env!("CARGO_BIN_EXE_longhaul")])
    }

    /// `server` is what runs longhaul there.
    fn with_server(name: &str, path: &str, server: &[&str]) -> Option<Self> {
        if !is_root_in_namespace() {
            longhaul_testing::no_judge!("needs root");
            return None;
        }
        let lab = TestLab::up(name, path)?;
        let command: Vec<&str> = server.iter().copied().chain(["serve"]).collect();
        let mut server = exec(&lab, "server", &command).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(server.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Some(Self { server: Program(server), lab })
    }

    fn udp(&self, arguments: &[&str]) -> Command {
        let start = [env!("CARGO_BIN_EXE_longhaul"), "udp", "server", "-4"];
        exec(&self.lab, "client", &start.into_iter().chain(arguments.iter().copied()).collect::<Vec<_>>())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.udp(arguments).output().unwrap()
    }

    /// The result of `arguments` with `--json`.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    }

    fn on_server(&self, command: &[&str]) -> String {
        let output = exec(&self.lab, "server", command).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

fn exec(lab: &TestLab, host: &str, command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    run.args(["lab", "exec", host, "--name", &lab.name, "--"]).args(command).stdin(Stdio::null());
    run
}

/// A folder that goes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn codes(result: &Value) -> Vec<&str> {
    result["caveats"].as_array().unwrap().iter().filter_map(|caveat| caveat["code"].as_str()).collect()
}

/// The packets that softirq on CPU 1 took are the test's where it is bound there, and are not where it is bound to CPU 0. The
/// sender and the emulator are on CPU 0.
#[test]
fn binding_moves_the_softirq_and_is_undone() {
    let _alone = alone();
    if fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim() == "0" {
        longhaul_testing::skipped!("there is one CPU");
        return;
    }
    let Some(test) = Tested::up("bind", "lan") else { return };
    test.on_server(&["sh", "-c", &format!("echo 2 > {MASK}")]);
    let before = test.on_server(&["cat", MASK]);
    for (bind, softirq) in [("same", 1), ("split", 0)] {
        let arguments = ["-k", "20000", "-b", "16M", "-l", "100", "--wire", "-w", "8M", "-A", "0,1", "--softirq", bind];
        let printed = test.json(&arguments);
        let result = &printed["result"];
        assert_eq!(printed["parameters"]["udp"]["affinity"]["softirq"], bind);
        assert_eq!(result["binding"]["receiver_cpus"], serde_json::json!([1]));
        assert_eq!(result["binding"]["softirq_cpus"], serde_json::json!([softirq]));
        assert_eq!(result["binding"]["interfaces"], serde_json::json!(["eth0"]));
        // The snapshot of the host shows it as well.
        let interfaces = printed["hosts"]["receiver"]["interfaces"].as_array().unwrap();
        let eth0 = interfaces.iter().find(|interface| interface["name"] == "eth0").unwrap();
        assert_eq!(eth0["queues"][0]["cpus"], serde_json::json!([softirq]));
        let processed =
            |cpu: u32| result["counters"]["receiver"][format!("machine, CPU {cpu}: processed")].as_i64().unwrap_or(0);
        let received = result["received_packets"].as_i64().unwrap();
        assert!(received > 10_000, "{received}");
        let (own, other) = (processed(1), processed(0));
        if softirq == 1 {
            assert!(own >= received, "{own} of {received} packets on CPU 1, {other} on CPU 0");
        } else {
            assert!(other >= received, "{own} of {received} packets on CPU 1, {other} on CPU 0");
            // The counts are the machine's: beside other traffic CPU 1 says nothing.
            let quiet = own + other < 4 * received;
            assert!(own < received / 2 || !quiet, "{own} of {received} packets on CPU 1, {other} on CPU 0");
        }
        assert!(result["counters"]["receiver"]["machine, CPU 1: busy_ns"].is_i64());
        assert_eq!(test.on_server(&["cat", MASK]), before, "set back");
    }
}

/// A host tests itself as fast as it goes, so that both CPUs have all that they can do.
#[test]
fn a_receiver_without_idle_time_is_a_doubt() {
    let _alone = alone();
    let Some(test) = Tested::up("saturated", "lan") else { return };
    let fast =
        [env!("CARGO_BIN_EXE_longhaul"), "udp", "127.0.0.1", "-b", "0", "-P", "2", "-t", "1500ms", "--wire", "-J"];
    let output = exec(&test.lab, "server", &[&fast[..], &["--softirq", "same"]].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = object(&output.stdout);
    assert_eq!(printed["result"]["binding"]["interfaces"], serde_json::json!(["lo"]));
    assert!(codes(&printed).contains(&"receiver_cpu_saturated"), "{:#}", printed["caveats"]);
}

/// The CPUs that the thread `name` of a process may run on; empty where there is none.
fn cpus_of(pid: u32, name: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let named = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let Some(path) = tasks.map(|task| task.path()).find(named) else { return String::new() };
    let status = fs::read_to_string(path.join("status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or_default().trim().to_owned()
}

#[test]
fn a_killed_server_leaves_rps_as_it_was() {
    let _shared = side_by_side();
    let Some(mut test) = Tested::up("bind-killed", "lan") else { return };
    let before = test.on_server(&["cat", MASK]);
    let mut client = test.udp(&["-t", "60", "--softirq", "same", "-A", "0,1"]).stderr(Stdio::null()).spawn().unwrap();
    until("RPS to be set", || test.on_server(&["cat", MASK]) != before);
    // The threads are where they were asked to be.
    until("the receiver", || cpus_of(test.server.0.id(), "receive 0") == "1");
    until("the sender", || cpus_of(client.id(), "send 0") == "0");
    // Nobody else may steer the same interface meanwhile.
    let other = exec(&test.lab, "server", &[env!("CARGO_BIN_EXE_longhaul"), "serve", "--port", "5211", "-1"]);
    let mut other = { other }.stderr(Stdio::piped()).spawn().unwrap();
    BufReader::new(other.stderr.take().unwrap()).read_line(&mut String::new()).unwrap();
    let refused = test.run(&["-p", "5211", "-t", "1", "--softirq", "split", "--json"]);
    assert_eq!(object(&refused.stdout)["error"]["code"], "not_bound", "{refused:?}");
    other.wait().unwrap();
    let server = Process::open(test.server.0.id()).unwrap().unwrap();
    server.signal(Signal::KILL).unwrap();
    test.server.0.wait().unwrap();
    until("RPS to be set back", || test.on_server(&["cat", MASK]) == before);
    assert!(!client.wait().unwrap().success());
}

/// A copy of the binary in `scratch` that everybody may run.
fn everybodys(scratch: &Scratch) -> PathBuf {
    let binary = scratch.0.join("longhaul");
    copy_program(env!("CARGO_BIN_EXE_longhaul"), &binary);
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    binary
}

/// With the capabilities that the unit of `serve` has, the server sees drop events and gets a large buffer. Without them the result
/// says what is missing.
#[test]
fn the_capabilities_of_the_service_are_those_that_it_needs() {
    let _shared = side_by_side();
    if let Some(why) = not_built() {
        longhaul_testing::no_judge!("this build has no BPF programs: {why}");
        return;
    }
    let unit = fs::read_to_string(root().join("packaging/longhaul-serve.service")).unwrap();
    let of_unit = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_")).unwrap();
    let of_unit = format!("-all,+{}", of_unit.to_lowercase().replace(" cap_", ",+"));
    let scratch = Scratch::new("service");
    let binary = everybodys(&scratch);
    for (capabilities, is_enough) in [(of_unit.as_str(), true), ("-all", false)] {
        let sets = ["bounding-set", "inh-caps", "ambient-caps"].map(|set| format!("--{set}={capabilities}"));
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
        let server: Vec<&str> = user.into_iter().chain(sets.iter().map(String::as_str)).collect();
        let server = [&server[..], &[binary.to_str().unwrap()]].concat();
        let Some(test) = Tested::with_server("service", "lan", &server) else { return };
        let result = test.json(&["-k", "100", "-b", "2M", "-w", "8M"]);
        let caveats = result["caveats"].as_array().unwrap();
        let lacks = |code: &str, why: &str| {
            caveats.iter().any(|one| one["code"] == code && one["message"].as_str().unwrap().contains(why))
        };
        assert_eq!(lacks("no_drop_events", "no permission"), !is_enough, "{caveats:#?}");
        assert!(!is_enough || !lacks("buffer_not_granted", ""), "{caveats:#?}");
    }
}

#[test]
fn without_the_right_binding_is_refused_with_a_remedy() {
    let _shared = side_by_side();
    let scratch = Scratch::new("unbound");
    let binary = everybodys(&scratch);
    let nobody =
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", binary.to_str().unwrap()];
    let Some(test) = Tested::with_server("unbound", "lan", &nobody) else { return };
    let refused = |arguments: &[&str], code: &str, part: &str| {
        let output = test.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = object(&output.stdout)["error"].clone();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
        assert!(!error["remedy"].as_str().unwrap().is_empty(), "{error}");
    };
    refused(&["-t", "1", "--softirq", "split"], "not_bound", "run as root");
    refused(&["-t", "1", "--collect", "bpf"], "no_drop_events", "collect: bpf");
    refused(&["-t", "1", "--collect", "bpf", "-R"], "no_drop_events", "collect: bpf");
    refused(&["-t", "1", "--timestamps", "nic"], "no_nic_timestamps", "ethtool -T eth0");
    refused(&["-t", "1", "-A", "0,4000"], "no_such_cpu", "4000");
    assert!(test.run(&["-k", "10", "--collect", "auto"]).status.success());
}

/// Every second packet is dropped: more runs than a result lists. The proof of the data path and the control connection pass.
#[test]
fn a_result_is_saved_whole_and_shown_again() {
    let _shared = side_by_side();
    let Some(test) = Tested::up("saved", "lan") else { return };
    let rules = "add table inet t; add chain inet t i { type filter hook input priority 0; }; \
                 add rule inet t i udp length 108 numgen inc mod 2 0 drop";
    if !exec(&test.lab, "server", &["nft", rules]).stderr(Stdio::null()).status().unwrap().success() {
        longhaul_testing::skipped!("there is no nft with numgen");
        return;
    }
    let scratch = Scratch::new("saved");
    let many = ["-k", "24000", "-b", "12M", "-l", "100", "--wire", "-w", "8M"];
    let unsaved = test.json(&many);
    assert_eq!(
        (unsaved["result"]["losses"].as_array().unwrap().len(), &unsaved["result"]["losses_file"]),
        (0, &Value::Null)
    );
    assert!(codes(&unsaved).contains(&"losses_not_listed"), "{unsaved:#}");

    let folder = scratch.0.join("many");
    let [page, again] = ["page.html", "again.html"].map(|name| scratch.0.join(name).to_str().unwrap().to_owned());
    let output = test.run(&[&many[..], &["--json", "-o", folder.to_str().unwrap(), "--html", &page]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(longhaul(&["show", folder.to_str().unwrap(), "--html", &again]).status.success());
    same_pages("udp", &fs::read_to_string(page).unwrap(), &fs::read_to_string(again).unwrap());
    assert_eq!(fs::read(folder.join("result.json")).unwrap(), output.stdout, "the very envelope");
    let printed = object(&output.stdout);
    let result = &printed["result"];
    assert_eq!(result["losses_file"], "losses.parquet");
    let rows = losses(&folder.join("losses.parquet"));
    let lost: u64 = rows.iter().map(|row| row.1).sum();
    assert!(rows.len() > 10_000, "{}", rows.len());
    assert_eq!(Some(lost), result["lost_packets"].as_u64());
    assert!(rows.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "ascending, none twice");
    let filtered = rows.iter().filter(|row| row.2 == "receiver_filter" && row.3.contains("NETFILTER_DROP"));
    let filtered: u64 = filtered.map(|row| row.1).sum();
    assert!(filtered > 10_000, "{filtered}");
    assert_eq!(Some(filtered), result["loss_by_location"]["receiver_filter"].as_u64());
    assert_eq!(Some(filtered), result["loss_reasons"][0]["packets"].as_u64());

    // Shown again as it was printed.
    let shown = |path: &Path, json: bool| {
        let path = path.to_str().unwrap();
        let output = if json { longhaul(&["show", path, "-J"]) } else { longhaul(&["show", path]) };
        assert!(output.status.success(), "{output:?}");
        output
    };
    assert_eq!(shown(&folder, true).stdout, output.stdout);
    let text = String::from_utf8(shown(&folder.join("result.json"), false).stdout).unwrap();
    assert!(text.contains("all losses are in losses.parquet") && text.contains("receiver_filter"), "{text}");
    let second = scratch.0.join("text");
    let text = test.run(&["-k", "300", "-b", "10M", "--bidir", "-o", second.to_str().unwrap()]);
    assert!(text.status.success(), "{text:?}");
    let again = shown(&second, false);
    assert_eq!((again.stdout, again.stderr), (text.stdout.clone(), text.stderr), "text and caveats");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours");

    // No result is written over.
    let over = test.run(&["-k", "10", "-o", folder.to_str().unwrap()]);
    assert_eq!(over.status.code(), Some(1));
    assert!(String::from_utf8(over.stderr).unwrap().contains("already"));

    refuses_what_is_no_result(&scratch, &printed);
}

/// Of both directions at once: a row for each packet that arrived, in the order of arrival, by the stamps that were asked for; of what the
/// firewall drops there is none. The batches are those that the result counts.
#[test]
fn each_packet_has_a_row() {
    let _shared = side_by_side();
    let Some(test) = Tested::up("rows", "lan") else { return };
    let rules = "add table inet t; add chain inet t i { type filter hook input priority 0; }; \
                 add rule inet t i udp length 508 numgen inc mod 10 0 drop";
    if !exec(&test.lab, "server", &["nft", rules]).stderr(Stdio::null()).status().unwrap().success() {
        longhaul_testing::skipped!("there is no nft with numgen");
        return;
    }
    let scratch = Scratch::new("rows");
    let folder = scratch.0.to_str().unwrap();
    let asked = ["-k", "3000", "-b", "20M", "-l", "500", "-P", "2", "--wire", "--timestamps", "kernel", "--bidir"];
    let saved = test.json(&[&asked[..], &["-w", "4M", "--each-packet", "-o", folder]].concat());
    for (direction, dropped) in [("forward", true), ("backward", false)] {
        let result = &saved["result"][direction];
        let file = result["packets_file"].as_str().unwrap_or_else(|| panic!("{saved:#}"));
        let reader = SerializedFileReader::new(File::open(scratch.0.join(file)).unwrap()).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                let row = row.unwrap();
                let numbers = [1, 2, 3, 5].map(|at| row.get_ulong(at).unwrap());
                (row.get_ubyte(0).unwrap(), numbers, row.get_string(4).unwrap().clone())
            })
            .collect();
        let received = result["received_packets"].as_u64().unwrap() + result["duplicate_packets"].as_u64().unwrap();
        assert_eq!(rows.len() as u64, received, "{direction}");
        assert_eq!(dropped, received < 2_900, "{direction}: {received}");
        let mut batches = 0;
        for stream in [0, 1] {
            let of: Vec<[u64; 4]> = rows.iter().filter(|row| row.0 == stream).map(|row| row.1).collect();
            // Both hosts share one clock: what arrived was sent before, and no longer ago than the path takes and the queue.
            assert!(of.iter().all(|[_, sent, arrived, _]| sent < arrived && arrived - sent < 5_000_000_000), "{of:?}");
            assert!(of.windows(2).all(|pair| (pair[0][2] == pair[1][2]) == (pair[0][3] == pair[1][3])));
            assert!(of.iter().all(|[sequence, ..]| *sequence < 1_500));
            batches += of.last().unwrap()[3] + 1;
        }
        assert_eq!(Some(batches), result["arrivals"]["batch_packets"]["count"].as_u64(), "{direction}");
        let stamped = rows.iter().filter(|row| row.2 == "kernel").count();
        assert_eq!(stamped, rows.len(), "veth has stamps of the kernel");
    }
    let alone = test.run(&["-k", "10", "--each-packet"]);
    assert_eq!(alone.status.code(), Some(2), "without -o: {alone:?}");
}

/// `first_sequence`, `packets`, `location` and `reason` of each row.
fn losses(file: &Path) -> Vec<(u64, u64, String, String)> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let row = |row: parquet::record::Row| {
        assert_eq!((row.get_ubyte(0).unwrap(), row.get_uint(3).unwrap()), (0, 1), "stream and unit_packets");
        let text = |at| row.get_string(at).unwrap().clone();
        (row.get_ulong(1).unwrap(), row.get_ulong(2).unwrap(), text(4), text(5))
    };
    reader.get_row_iter(None).unwrap().map(|it| row(it.unwrap())).collect()
}

fn refuses_what_is_no_result(scratch: &Scratch, good: &Value) {
    let file = scratch.0.join("bad.json");
    let mut changed = vec![];
    let mut change = |what: fn(&mut Value)| {
        let mut bad = good.clone();
        what(&mut bad);
        changed.push(bad.to_string());
    };
    change(|bad| bad["schema"] = "longhaul.host/1".into());
    change(|bad| bad["schema"] = "\u{1b}[2Jlonghaul\n".into());
    change(|bad| drop(bad.as_object_mut().unwrap().remove("result")));
    change(|bad| bad["result"]["lost_packets"] = "many".into());
    change(|bad| bad["result"]["lost_packets"] = (-1).into());
    change(|bad| bad["parameters"] = Value::Null);
    let texts = ["", "{", "[]", "null", "{\"schema\":\"longhaul.udp/1\"}", "\u{0}\u{1}", &"[".repeat(100_000)];
    for text in texts.into_iter().chain(changed.iter().map(String::as_str)) {
        fs::write(&file, text).unwrap();
        for flag in [&[][..], &["--json"]] {
            let output = longhaul(&[&["show", file.to_str().unwrap()], flag].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            let begin: String = text.chars().take(60).collect();
            assert_eq!(output.status.code(), Some(1), "{begin}: {said}");
            assert!(
                said.lines().count() == 1 && said.contains("bad.json") && !said.contains('\u{1b}'),
                "{begin}: {said}"
            );
        }
    }
    // What is only strange is shown, without control characters and without end.
    let mut strange = good.clone();
    strange["result"]["loss_reasons"][0]["reason"] = "\u{1b}[2J\nx".into();
    strange["result"]["loss_by_location"]["network"] = u64::MAX.into();
    strange["result"]["sent_packets"] = 0.into();
    strange["caveats"] = serde_json::json!([{ "code": "c", "message": "\u{1b}[2J\u{7}", "remedy": "" }]);
    fs::write(&file, strange.to_string()).unwrap();
    let output = longhaul(&["show", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let said = [output.stdout, output.stderr].concat();
    assert!(!said.contains(&0x1b) && !said.contains(&7), "{}", String::from_utf8_lossy(&said));
    // A pipe without end is not read to its end.
    assert_eq!(longhaul(&["show", "/dev/zero"]).status.code(), Some(1));
    assert_eq!(longhaul(&["show", scratch.0.to_str().unwrap()]).status.code(), Some(1));
}

#[test]
fn hosts_are_named_by_what_they_did() {
    let _shared = side_by_side();
    let Some(test) = Tested::up("hosts-named", "lan") else { return };
    test.on_server(&["ip", "link", "set", "eth0", "txqueuelen", "777"]);
    let is_server = |host: &Value| {
        let interfaces = host["interfaces"].as_array().unwrap();
        interfaces.iter().any(|interface| interface["transmit_queue_packets"] == 777)
    };
    for (flag, server, client) in
        [("--wire", "receiver", "sender"), ("-R", "sender", "receiver"), ("--bidir", "server", "client")]
    {
        let printed = test.json(&["-k", "20", flag]);
        let hosts = &printed["hosts"];
        assert_eq!(hosts.as_object().unwrap().len(), 2, "{flag}");
        assert!(is_server(&hosts[server]) && !is_server(&hosts[client]), "{flag}");
        let result = if flag == "--bidir" { &printed["result"]["backward"] } else { &printed["result"] };
        for end in ["sender", "receiver"] {
            assert!(result["socket_buffers"][end]["given_bytes"].as_u64() > Some(0), "{flag} {result:#}");
        }
    }
    // Where and how losses are placed is as asked.
    let set = longhaul(&["lab", "set", "--name", &test.lab.name, "forward.loss=every(10)"]);
    assert!(set.status.success(), "{set:?}");
    for (collect, method, location) in
        [("bpf", "bpf", "network"), ("counters", "counters", "network"), ("off", "counters", "unexplained")]
    {
        let printed = test.json(&["-k", "500", "-b", "10M", "--wire", "--collect", collect]);
        let result = &printed["result"];
        assert_eq!(result["location_method"], method, "{collect}");
        assert_eq!(result["loss_by_location"][location], result["lost_packets"], "{collect}: {result:#}");
        assert!(result["lost_packets"].as_u64() > Some(40), "{collect}");
    }
    let backward = test.json(&["-k", "200", "-b", "10M", "-R", "--collect", "bpf"]);
    assert_eq!(
        (&backward["result"]["location_method"], &backward["result"]["lost_packets"]),
        (&"bpf".into(), &0.into())
    );
    // Kernel stamps: each packet's own with --wire, a batch's without.
    let wire = test.json(&["-k", "500", "-b", "10M", "--wire", "--timestamps", "kernel"]);
    assert!(wire["result"]["jitter_ns"].is_u64() && !codes(&wire).contains(&"packets_unstamped"), "{wire:#}");
    let batches = test.json(&["-k", "504", "-b", "10M", "--burst", "8", "--timestamps", "kernel"]);
    assert!(batches["result"]["jitter_ns"].is_null() && codes(&batches).contains(&"jitter_unknown"), "{batches:#}");
}

/// Ctrl-C, and what a service manager sends: what was measured so far, as one object behind those of the intervals.
#[test]
fn a_signal_ends_the_test_with_what_was_measured() {
    let _shared = side_by_side();
    let Some(test) = Tested::up("signal", "lan") else { return };
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut client =
            test.udp(&["-t", "100", "-i", "100ms", "--json-stream"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!((first["schema"].as_str(), first["start_ns"].as_u64()), (Some("longhaul.udp.interval/1"), Some(0)));
        Process::open(client.id()).unwrap().unwrap().signal(signal).unwrap();
        let mut rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
        assert_eq!(client.wait().unwrap().code(), Some(exit));
        let last = rest.pop().unwrap();
        assert_eq!(last["schema"], "longhaul.udp/1");
        assert!(last["result"]["received_packets"].as_u64() > Some(0), "{last:#}");
        assert!(last["result"]["duration_ns"].as_u64() < Some(60_000_000_000), "{last:#}");
        assert!(codes(&last).contains(&"interrupted"), "{last:#}");
        let intervals = rest.iter().map(|interval| interval["received_packets"].as_u64().unwrap()).sum::<u64>()
            + first["received_packets"].as_u64().unwrap();
        assert!(intervals <= last["result"]["received_packets"].as_u64().unwrap(), "{intervals}");
    }
}
