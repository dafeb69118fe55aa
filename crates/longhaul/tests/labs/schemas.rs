//! What `--json` prints is what `schemas/` says.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{TestLab, longhaul, object, root};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_kernel::capability;
use longhaul_kernel::link::{LinkError, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use serde_json::{Value, json};

fn schema(name: &str) -> Value {
    let file = root().join("schemas").join(format!("{name}.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What is wrong with `object` by the schema that it names itself.
fn problems(object: &Value) -> Vec<String> {
    let name = object["schema"].as_str().expect("an object says its schema").replace('/', "-");
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(&schema(&name))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

pub(crate) fn assert_valid(object: &Value, schema: &str) {
    assert_eq!(object["schema"], schema, "{object}");
    let problems = problems(object);
    assert!(problems.is_empty(), "{}\n{object:#}", problems.join("\n"));
}

/// A schema that takes anything would pass every other test here.
#[test]
fn schemas_refuse_what_is_not_said() {
    let good = object(&longhaul(&["paths", "--json"]).stdout);
    let changes: [fn(&mut Value); 5] = [
        |object| object["more"] = json!(1),
        |object| drop(object.as_object_mut().unwrap().remove("caveats")),
        |object| object["started_at"] = json!("yesterday"),
        |object| object["result"]["paths"][0]["forward_delay_ns"] = json!(-1),
        |object| object["caveats"] = json!([{ "code": "Late!", "message": "", "remedy": "" }]),
    ];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!problems(&bad).is_empty(), "{bad:#}");
    }
}

#[test]
fn every_schema_is_one() {
    for entry in fs::read_dir(root().join("schemas")).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        let schema = schema(&name);
        jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(schema["$id"].as_str().unwrap().ends_with(&format!("/{name}.json")), "{name}");
    }
}

#[test]
fn paths() {
    assert_valid(&object(&longhaul(&["paths", "--json"]).stdout), "longhaul.paths/1");
}

#[test]
fn errors() {
    for (arguments, exit) in [
        (&["lab", "status", "--name", "there-is-none", "--json"][..], 1),
        (&["lab", "status", "--name", "no name", "--json"], 2),
        (&["emulate", "--left", "lh-none-1", "--right", "lh-none-2", "--path", "lan", "-J"], 1),
        (&["paths", "--json", "--nonsense"], 2),
    ] {
        let output = longhaul(arguments);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
        assert_valid(&object(&output.stdout), "longhaul.error/1");
    }
}

#[test]
fn lab_status_and_list() {
    let Some(lab) = TestLab::up("schemas", "lan") else { return };
    let ping = longhaul(&["lab", "exec", "--name", &lab.name, "client", "--", "ping", "-c", "1", "server"]);
    assert!(ping.status.success(), "{ping:?}");

    let list = object(&longhaul(&["lab", "list", "--json"]).stdout);
    assert_valid(&list, "longhaul.lab.list/1");
    assert!(list["result"]["labs"].as_array().unwrap().iter().any(|entry| entry["name"] == lab.name), "{list:#}");

    let status = object(&longhaul(&["lab", "status", "--name", &lab.name, "--json"]).stdout);
    assert_valid(&status, "longhaul.lab.status/1");
    assert!(status["result"]["ports"][0]["received"]["packets"].as_u64() >= Some(1), "{status:#}");

    let last = object(&longhaul(&["lab", "down", "--name", &lab.name, "--json"]).stdout);
    assert_valid(&last, "longhaul.lab.down/1");
    let ended = last["result"]["labs"].as_array().unwrap();
    assert!(ended.len() == 1 && ended[0]["lab"]["name"] == lab.name, "{last:#}");
    assert_eq!(ended[0]["status"]["ports"][0]["received"], status["result"]["ports"][0]["received"]);
}

#[test]
fn lab_run() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("polling a receiver's ring takes root");
        return;
    }
    let experiment = root().join("crates/longhaul/tests/three-places.toml");
    // A bound that cannot be kept: there are rejected runs as well.
    let once = ["--json", "--repeat", "1", "--tries", "1", "--lateness-bound"];
    let run = |experiment: &Path, bound: &str| {
        let output = longhaul(&[&["lab", "run", experiment.to_str().unwrap()], &once[..], &[bound]].concat());
        assert!(output.status.success(), "{output:?}");
        let whole = object(&output.stdout);
        assert_valid(&whole, "longhaul.lab.run/2");
        whole
    };
    let whole = run(&experiment, "1ns");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{}.json", std::process::id()));
    fs::write(&file, whole.to_string()).unwrap();
    let name = file.to_str().unwrap();
    let beside = longhaul(&["report", name, name, "--json"]);
    let shown = longhaul(&["report", name]);
    let table = longhaul(&["report", name, name, "--markdown"]);
    fs::remove_file(&file).unwrap();
    assert_valid(&object(&beside.stdout), "longhaul.report/1");
    assert!(String::from_utf8(shown.stdout).unwrap().contains("Everything at once"), "its tables");
    let table = String::from_utf8(table.stdout).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| Everything at once, ")).count();
    assert!(rows == 2 && table.contains("\n| point |"), "a row for each point: {table}");
    let plan = longhaul(&["lab", "run", experiment.to_str().unwrap(), "--plan", "--json"]);
    let plan = object(&plan.stdout);
    assert_valid(&plan, "longhaul.lab.run.plan/1");
    let mut bad = plan.clone();
    bad["result"]["series"][0]["runs_of_each"] = 0.into();
    assert!(!problems(&bad).is_empty(), "each point is run");
    let points = whole["result"]["udp"][0]["points"].as_array().unwrap();
    assert!(points.len() == 2 && points[0]["rejected"][0]["why"]["code"].is_string(), "{points:#?}");
    let mut bad = whole.clone();
    let lost = &mut bad["result"]["udp"][0]["points"][1]["rejected"][0]["result"]["loss_by_location"];
    drop(lost.as_object_mut().unwrap().remove("network"));
    assert!(!problems(&bad).is_empty(), "every place is named");

    let whole = run(&root().join("crates/longhaul/tests/two-flows.toml"), "1s");
    let mut bad = whole.clone();
    let point = &mut bad["result"]["tcp"][1]["points"][0];
    let kind = if point["runs"][0].is_object() { "runs" } else { "rejected" };
    point[kind][0]["beside"]["result"]["goodput_bps"] = Value::Null;
    assert!(!problems(&bad).is_empty());
}

#[test]
fn lab_run_of_a_mix() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("sending a mix takes root");
        return;
    }
    let experiment = root().join("crates/longhaul/tests/one-mix.toml");
    let once = ["--json", "--repeat", "1", "--tries", "1"];
    let output = longhaul(&[&["lab", "run", experiment.to_str().unwrap()], &once[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let whole = object(&output.stdout);
    assert_valid(&whole, "longhaul.lab.run/2");
    assert_eq!(whole["parameters"]["mix"], "nima");
    for series in whole["result"]["mix"].as_array().unwrap() {
        // Whether it counts or not.
        let only = |point: usize| {
            let point = &series["points"][point];
            [&point["runs"], &point["rejected"]].into_iter().find_map(|runs| runs.get(0)).unwrap().clone()
        };
        let (slow, fast) = (only(0), only(1));
        let (slow, fast) = (&slow["at_rate"], &fast["most"]);
        assert_eq!(slow["stream_received_packets"], slow["stream_sent_packets"], "{series:#}");
        assert!(
            slow["stream_sent_packets"].as_u64() > Some(0) && slow["tcp_goodput_bps"].as_u64() > Some(0),
            "{series:#}"
        );
        assert!(fast["sender_ns_per_packet"].as_f64() > fast["making_ns_per_packet"].as_f64(), "{series:#}");
    }
}

#[test]
fn mix() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("sending a mix takes root");
        return;
    }
    let apart = NetNamespace::create().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        apart.enter(|| command.args(["mix", "left", "--json", "-k", "100"]).args(arguments).output()).unwrap().unwrap()
    };
    let end = |name| VethEnd { name, namespace: None, mtu_bytes: None, mac: None };
    let up = || -> Result<(), LinkError> {
        let mut netlink = Netlink::open()?;
        netlink.create_veth(&end("left"), &end("right"))?;
        for name in ["left", "right"] {
            let index = netlink.index_of(name)?;
            netlink.set_up(index, true)?;
        }
        Ok(())
    };
    apart.enter(up).unwrap().unwrap();
    let target = ["--target", "192.0.2.2", "--target-mac", "02:00:00:00:00:02", "--pps", "0"];
    assert_valid(&object(&run(&target).stdout), "longhaul.mix/1");
    assert_valid(
        &object(&run(&[&target[..], &["--size", "64", "-t", "1s", "--engine", "packet"]].concat()).stdout),
        "longhaul.mix/1",
    );
    assert_valid(&object(&run(&["--target", "192.0.2.2"]).stdout), "longhaul.error/1");
}

#[test]
fn host() {
    assert_valid(&object(&longhaul(&["host", "--json"]).stdout), "longhaul.host/1");
    let one = object(&longhaul(&["host", "--json", "lo"]).stdout);
    assert_valid(&one, "longhaul.host/1");
    let names: Vec<_> = one["result"]["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["lo"]);
    let output = longhaul(&["host", "--json", "none"]);
    assert_valid(&object(&output.stdout), "longhaul.error/1");
}

#[test]
fn cc() {
    assert_valid(&object(&longhaul(&["cc", "list", "--json"]).stdout), "longhaul.cc.list/1");
    for algorithm in longhaul_congestion::Algorithm::ALL {
        assert_valid(&object(&longhaul(&["cc", "show", algorithm.name(), "--json"]).stdout), "longhaul.cc.show/1");
    }
    let table = object(&longhaul(&["cc", "table", "--algorithm", "all", "--rate", "1G,100G", "--json"]).stdout);
    assert_valid(&table, "longhaul.cc.table/1");
    assert_eq!(table["result"]["rows"].as_array().unwrap().len(), 2 * 12);
    let list = object(&longhaul(&["cc", "list", "--json"]).stdout);
    let cannot = &list["result"]["cannot_load_because"];
    if !capability::is_root_in_namespace() || !cannot.is_null() || !has_bpf_fs() {
        return longhaul_testing::skipped!("loading takes root, a BPF file system and {cannot}");
    }
    let name = format!("ls{}", std::process::id());
    let loaded = object(&longhaul(&["cc", "load", "yeah", "--as", &name, "--set", "alpha=60", "--json"]).stdout);
    assert_valid(&loaded, "longhaul.cc.load/1");
    assert_eq!(loaded["result"]["loaded"][0]["parameters"]["alpha"], 60);
    assert_valid(&object(&longhaul(&["cc", "list", "--json"]).stdout), "longhaul.cc.list/1");
    assert_valid(&object(&longhaul(&["cc", "unload", &name, "--json"]).stdout), "longhaul.cc.unload/1");
}

#[test]
fn udp() {
    let Some(lab) = TestLab::up("schemas-udp", "lan") else { return };
    let exec = |host: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["lab", "exec", host, "--name", &lab.name, "--", env!("CARGO_BIN_EXE_longhaul")]).args(arguments);
        command
    };
    let mut server = exec("server", &["serve"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stderr.take().unwrap()), &mut line).unwrap();
    let bind: &[&str] = if capability::is_root_in_namespace() { &["--softirq", "same", "-w", "1M"] } else { &[] };
    let run = |arguments: &[&str]| {
        let output =
            exec("client", &[&["udp", "server", "-k", "400", "-b", "4M"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let results = [
        run(&["-J"]),
        run(&["-J", "--bidir", "-P", "2"]),
        run(&[&["-J", "-R", "--wire", "--timestamps", "kernel"], bind].concat()),
    ];
    longhaul(&["lab", "set", "--name", &lab.name, "forward.loss=every(10)"]);
    let lossy = run(&["-J", "--wire", "-l", "500"]);
    for text in results.iter().chain([&lossy]) {
        assert_valid(&object(text.as_bytes()), "longhaul.udp/1");
    }
    assert!(object(lossy.as_bytes())["result"]["losses"].as_array().is_some_and(|losses| losses.len() > 5), "{lossy}");
    let stream = run(&["--json-stream", "-i", "100ms"]);
    let (last, intervals) = stream.lines().collect::<Vec<_>>().split_last().map(|(l, i)| (*l, i.to_vec())).unwrap();
    assert_valid(&object(last.as_bytes()), "longhaul.udp/1");
    assert!(!intervals.is_empty());
    for interval in intervals {
        assert_valid(&object(interval.as_bytes()), "longhaul.udp.interval/1");
    }
    // A schema that takes anything would pass all of that.
    let changes: [fn(&mut Value); 5] = [
        |object| object["result"]["lost_packets"] = json!(-1),
        |object| object["result"]["losses"][0]["location"] = json!("elsewhere"),
        |object| drop(object["result"].as_object_mut().unwrap().remove("spacing")),
        |object| object["hosts"]["receiver"]["interfaces"][0]["mtu_bytes"] = json!("large"),
        |object| drop(object["hosts"].as_object_mut().unwrap().remove("sender")),
    ];
    for change in changes {
        let mut bad = object(lossy.as_bytes());
        change(&mut bad);
        assert!(!problems(&bad).is_empty(), "{bad:#}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn tcp() {
    let Some(lab) = TestLab::up("schemas-tcp", "lan") else { return };
    let exec = |host: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(["lab", "exec", host, "--name", &lab.name, "--", env!("CARGO_BIN_EXE_longhaul")]).args(arguments);
        command
    };
    let mut server = exec("server", &["serve"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stderr.take().unwrap()), &mut line).unwrap();
    let run = |arguments: &[&str]| {
        let output = exec("client", &[&["tcp", "server", "-J"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        object(&output.stdout)
    };
    longhaul(&["lab", "set", "--name", &lab.name, "forward.loss=every(300)"]);
    let results = [
        run(&["-t", "500ms"]),
        run(&["-n", "2M", "--bidir", "-P", "2", "-6", "--collect", "counters"]),
        run(&["-t", "500ms", "-R", "-w", "auto", "--rate-goal", "100M", "-C", "reno:200ms,cubic", "--pace", "1G"]),
    ];
    let stream =
        exec("client", &["tcp", "server", "--json-stream", "-i", "100ms", "-t", "500ms", "--bidir"]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    for result in &results {
        assert_valid(result, "longhaul.tcp/1");
    }
    let lines: Vec<Value> = stream.stdout.trim_ascii().split(|byte| *byte == b'\n').map(object).collect();
    let (last, intervals) = lines.split_last().unwrap();
    assert_valid(last, "longhaul.tcp/1");
    for direction in ["forward", "backward"] {
        assert!(intervals.iter().any(|interval| interval["direction"] == direction), "{intervals:#?}");
    }
    for interval in intervals {
        assert_valid(interval, "longhaul.tcp.interval/1");
    }
    // A schema that takes anything would pass all of that.
    let changes: [fn(&mut Value); 5] = [
        |object| object["result"]["goodput_bps"] = json!(-1),
        |object| object["result"]["limited_by"]["application"] = json!(1.5),
        |object| object["result"]["loss_bytes_by_location"]["elsewhere"] = json!(1),
        |object| drop(object["result"].as_object_mut().unwrap().remove("streams")),
        |object| object["parameters"]["tcp"]["streams"] = json!("four"),
    ];
    for change in changes {
        let mut bad = results[0].clone();
        change(&mut bad);
        assert!(!problems(&bad).is_empty(), "{bad:#}");
    }
}

#[test]
fn emulate() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("making interfaces takes root");
        return;
    }
    let stats = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-{}.json", std::process::id()));
    let namespace = NetNamespace::create().unwrap();
    let output = namespace
        .enter(|| {
            cables().unwrap();
            Command::new(env!("CARGO_BIN_EXE_longhaul"))
                .args(["emulate", "--left", "near", "--right", "far", "--path", "nlr-tiny", "-t", "300ms", "-J"])
                .args(["--memory", "1G", "--realtime", "1", "--stats"])
                .arg(&stats)
                .output()
                .unwrap()
        })
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let kept = fs::read(&stats).unwrap();
    fs::remove_file(&stats).unwrap();
    for text in [output.stdout, kept] {
        assert_valid(&object(&text), "longhaul.emulate/1");
    }
}

/// Two cables with an end each for the emulator.
fn cables() -> Result<(), LinkError> {
    let mut netlink = Netlink::open()?;
    let end = |name| VethEnd { name, namespace: None, mtu_bytes: None, mac: None };
    netlink.create_veth(&end("host-a"), &end("near"))?;
    netlink.create_veth(&end("far"), &end("host-b"))?;
    for name in ["host-a", "near", "far", "host-b"] {
        let index = netlink.index_of(name)?;
        netlink.set_up(index, true)?;
    }
    Ok(())
}

#[test]
fn watch() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_far, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut near, &[7; 1000]).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let good = object(&longhaul(&["watch", "-J", "--port", &port, "-t", "50ms"]).stdout);
    assert_valid(&good, "longhaul.watch/1");
    assert_eq!(good["result"]["connections"].as_array().unwrap().len(), 2, "{good:#}");
    assert_valid(&object(&longhaul(&["watch", "-J", "--", "true"]).stdout), "longhaul.watch/1");
    let changes: [fn(&mut Value); 3] = [
        |object| object["result"]["connections"][0]["flow"] = json!("sideways"),
        |object| object["result"]["connections"][0]["limited_by"]["application"] = json!(1.5),
        |object| drop(object["result"]["connections"][0].as_object_mut().unwrap().remove("cookie")),
    ];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!problems(&bad).is_empty(), "{bad:#}");
    }
    for (arguments, code) in
        [(&["watch", "-J", "--pid", "4194305"][..], "no_process"), (&["watch", "-J", "--cgroup", "/tmp"], "no_cgroup")]
    {
        let error = object(&longhaul(arguments).stdout);
        assert_valid(&error, "longhaul.error/1");
        assert_eq!(error["error"]["code"], code, "{error:#}");
    }
}

#[test]
fn filter_status() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("run as root");
        return;
    }
    let (ours, theirs) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let end = |name, namespace| VethEnd { name, namespace: Some(namespace), mtu_bytes: None, mac: None };
    let mut netlink = ours.enter(Netlink::open).unwrap().unwrap();
    netlink.create_veth(&end("lhs0", &ours), &end("lhs1", &theirs)).unwrap();
    let arguments = ["filter", "attach", "lhs0", "--json", "-t", "10ms"];
    let output = ours.enter(|| longhaul(&arguments)).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_valid(&object(&output.stdout), "longhaul.filter.status/1");
}

/// A probe and a TCP segment: one packet of either kind, at two points and as two runs.
#[test]
fn analyze_and_compare() {
    let file = root().join("fuzz/corpus/capture/nanoseconds");
    let file = file.to_str().unwrap();
    let analysed = object(&longhaul(&["analyze", "--json", file]).stdout);
    assert_valid(&analysed, "longhaul.analyze/1");
    assert!(analysed["result"]["flows"].as_array().unwrap().len() >= 2, "{analysed:#}");
    assert_valid(&object(&longhaul(&["compare", "--json", file, file]).stdout), "longhaul.compare/1");
    assert_valid(&object(&longhaul(&["compare", "--behaviour", "--json", file, file]).stdout), "longhaul.compare/1");
}

#[test]
fn capture_and_convert() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("capturing takes root");
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capture-{}", std::process::id()));
    let (spool, log) = (folder.join("spool"), folder.join("log.parquet"));
    let (spool, log) = (spool.to_str().unwrap(), log.to_str().unwrap());
    let captured = object(&longhaul(&["capture", "-J", "lo", "-t", "200ms", "-o", spool]).stdout);
    assert_valid(&captured, "longhaul.capture/1");
    let mut bad = captured.clone();
    bad["result"]["dropped_by_place"].as_object_mut().unwrap().remove("nic");
    assert!(!problems(&bad).is_empty(), "{bad:#}");
    assert_valid(&object(&longhaul(&["convert", "-J", spool, log]).stdout), "longhaul.convert/1");
    let error = object(&longhaul(&["convert", "-J", "/nonexistent", log]).stdout);
    assert_valid(&error, "longhaul.error/1");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn capture_to_a_logging_host() {
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("capturing takes root");
        return;
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{}", std::process::id()));
    let mut log = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["log", "-J", "-1", "-p", "0", "-o", folder.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(log.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    // "… at 127.0.0.1:PORT; Ctrl-C ends"
    let to = said.split(" at ").last().unwrap().split(';').next().unwrap().to_owned();
    let captured = object(&longhaul(&["capture", "-J", "lo", "-t", "300ms", "--to", &to]).stdout);
    assert_valid(&captured, "longhaul.capture/1");
    assert_eq!((&captured["parameters"]["output"], &captured["parameters"]["to"][0]), (&Value::Null, &json!(to)));
    // It goes on to speak.
    std::thread::spawn(move || drop(std::io::copy(&mut stderr, &mut std::io::sink())));
    let logged = object(&log.wait_with_output().unwrap().stdout);
    assert_valid(&logged, "longhaul.log/1");
    let capture = &logged["result"]["captures"][0];
    assert_eq!(capture["written_packets"], captured["result"]["written_packets"], "{logged:#}");
    let mut bad = logged.clone();
    bad["result"]["captures"][0]["end"] = json!("maybe");
    assert!(!problems(&bad).is_empty(), "{bad:#}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn tune() {
    let state = std::env::temp_dir().join(format!("longhaul-schemas-tune-{}", std::process::id()));
    let state = state.to_str().unwrap();
    let target = ["tune", "--rate", "10G", "--rtt", "150ms", "--json", "--state", state];
    assert_valid(&object(&longhaul(&target).stdout), "longhaul.tune/1");
    assert_valid(&object(&longhaul(&["tune", "status", "--json", "--state", state]).stdout), "longhaul.tune.status/1");
    if !capability::is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let namespace = NetNamespace::create().unwrap();
    let run = |words: &[&str]| object(&namespace.enter(|| longhaul(words)).unwrap().stdout);
    assert_valid(&run(&[&target[..], &["--apply"]].concat()), "longhaul.tune/1");
    for action in ["status", "confirm", "undo"] {
        let printed = run(&["tune", action, "--json", "--state", state]);
        assert_valid(&printed, &format!("longhaul.tune.{action}/1"));
    }
    fs::remove_dir(state).unwrap();
}
