//! `longhaul sweep`, and the capacity that packet trains show, over a path whose rate is known.

use std::fs;
use std::process::{Output, Stdio};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::receive_settings::receive_settings;
use longhaul_testing::waiting::until;
use serde_json::Value;

use crate::common::captures::{Folder, on};
use crate::common::page::same_pages;
use crate::common::{alone, longhaul, object, quiet, side_by_side};
use crate::rtt::Answered;
use crate::rtt::idle::{SERVER_TEXT, cable, printed, serve};

const PATH: &str = "
name = 'narrow'
[[both]]
rate = '20Mbit'
queue = '64KiB'
delay = '2ms'
";

fn client(answered: &Answered, arguments: &[&str]) -> Output {
    on(&answered.lab, "client", &[&[env!("CARGO_BIN_EXE_longhaul")], arguments].concat()).output().unwrap()
}

#[test]
fn a_sweep_finds_the_rate_of_the_path() {
    let _machine = quiet();
    let Some(answered) = Answered::on_this_machine("swept", PATH) else { return };
    let features = || on(&answered.lab, "server", &["ethtool", "-k", "eth0"]).output().unwrap().stdout;
    let before = features();
    assert!(!before.is_empty());
    let folder = Folder::new("sweep");
    let [saved, html] = ["saved", "page.html"].map(|name| folder.file(name));
    let swept = ["sweep", "server", "--sizes", "300,1400", "-b", "4M,40M", "--gro", "on,off", "-t", "500ms"];
    let output = client(&answered, &[&swept[..], &["--repeat", "2", "-o", &saved, "--html", &html, "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = &object(&output.stdout)["result"];

    let points = result["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    let mut numbers = Vec::new();
    for point in points {
        let means = &point["means"];
        for (test, figures) in point["tests"].as_array().unwrap().iter().map(|test| (test, &test["figures"])) {
            numbers.push(test["number"].as_u64().unwrap());
            assert!(figures["received_bps"].as_u64().unwrap() > 1_000_000, "{test:#}");
            assert_eq!(figures["receive_settings"]["gro"], point["point"]["gro"], "{test:#}");
        }
        assert!(means["lost"]["standard_error"].is_f64() && means["lost"]["tests"] == 2, "{means:#}");
        // Single packets, stamped one by one: what was spaced at 600 us or more still is.
        if point["point"]["pace"]["rate_bps"] == 4_000_000 {
            let [into, out] = ["spacing_in_ns", "spacing_out_ns"].map(|key| means[key]["mean"].as_f64().unwrap());
            assert!((out / into - 1.0).abs() < 0.25, "{into} in, {out} out: {point:#}");
        }
    }
    // Each test once, in an order of its own in each repetition.
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..16).collect::<Vec<_>>());
    assert_ne!(numbers, sorted);

    let knees = result["knees"].as_array().unwrap();
    assert_eq!(knees.len(), 4);
    for knee in knees {
        let carried = knee["carried_bps"].as_f64().unwrap();
        assert!((carried / 4e6 - 1.0).abs() < 0.05, "{knee:#}");
        assert_eq!(knee["limit"]["loss"], "network", "{knee:#}");
    }
    assert_eq!(features(), before, "GRO is as it was");

    // What was saved reads as what was printed, and the page draws each point once a metric.
    let text = String::from_utf8(longhaul(&["show", &saved]).stdout).unwrap();
    assert!(text.contains("with gro on") && text.contains("the limit is in bits per second"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    let page = fs::read_to_string(&html).unwrap();
    let again = folder.file("again.html");
    assert!(longhaul(&["show", &saved, "--html", &again]).status.success());
    same_pages("sweep", &page, &fs::read_to_string(again).unwrap());
    let (page, _) = page.split_once("<script>").unwrap_or((&page, ""));
    let maps = page.matches("<svg").count();
    assert!(maps >= 4 && page.matches("<rect").count() == maps * 4, "{maps} maps");
}

/// A plain veth whose sender has no TSO: its packets pass NAPI. 625 packets a second, one each 1.6 ms, of which NAPI takes six together every 10 ms.
#[test]
fn deferral_lets_packets_arrive_together_and_is_put_back() {
    const DEFERRED_NS: u64 = 10_000_000;
    let _alone = alone();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root");
        return;
    }
    let (client, server) = cable();
    printed(&client, &["ethtool", "-K", "cable", "tso", "off"]);
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let words = [longhaul, "serve", "--no-auth", "--bind", SERVER_TEXT, "--host-settings", "allow"];
    let _server = serve(&server, &words, 5_210);
    let settings = || server.enter(|| receive_settings("cable")).unwrap();
    let before = settings();
    assert_eq!((before.gro_flush_timeout_ns, before.napi_defer_hard_irqs), (Some(0), Some(0)));
    let asked = ["sweep", SERVER_TEXT, "--no-auth", "--sizes", "200", "-b", "1M", "--gro", "on", "--defer", "0,10ms"];
    let apart = || {
        let swept = printed(&client, &[&[longhaul], &asked[..], &["-t", "1s", "--repeat", "1", "--json"]].concat());
        assert_eq!(settings(), before, "all is as it was");
        let swept = object(swept.as_bytes());
        [0, DEFERRED_NS].map(|timer_ns| {
            let mut points = swept["result"]["points"].as_array().unwrap().iter();
            let set =
                |point: &&Value| point["tests"][0]["figures"]["receive_settings"]["gro_flush_timeout_ns"] == timer_ns;
            let point = points.find(set).unwrap_or_else(|| panic!("none with {timer_ns}: {swept:#}"));
            ["spacing_in_ns", "spacing_out_ns"].map(|key| point["means"][key]["mean"].as_f64().unwrap())
        })
    };
    // A busy machine keeps the sender or the softirq waiting now and then: one of three sweeps must be good.
    let good = |[[sent, singly], [_, together]]: [[f64; 2]; 2]| {
        println!("median between departures {sent} ns, arrivals {singly} ns, with deferral {together} ns");
        (singly / sent - 1.0).abs() < 0.25 && together < 100_000.0
    };
    assert!((0..3).any(|_| good(apart())), "deferral makes no difference, or spoils what is not deferred");
}

#[test]
fn a_setting_that_the_interface_lacks_is_named() {
    let _shared = side_by_side();
    let Some(answered) = Answered::on_this_machine("swept-ring", PATH) else { return };
    let output = client(&answered, &["sweep", "server", "--ring", "64,128", "--json"]);
    let error = &object(&output.stdout)["error"];
    assert_eq!((output.status.code(), &error["code"]), (Some(1), &Value::from("receive_settings")), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("eth0 has no receive ring"), "{error:#}");
}

#[test]
fn what_is_known_at_ctrl_c_is_printed() {
    let _shared = side_by_side();
    let Some(answered) = Answered::on_this_machine("swept-end", PATH) else { return };
    let folder = Folder::new("swept-end");
    let metrics = folder.file("sweep.prom");
    let sweep = [env!("CARGO_BIN_EXE_longhaul"), "sweep", "server", "-b", "1M,2M", "-t", "300ms", "--json"];
    let mut command = on(&answered.lab, "client", &[&sweep[..], &["--prometheus", &metrics]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the first test to end", || fs::exists(&metrics).unwrap());
    Process::open(child.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let envelope = object(&output.stdout);
    let tests = |point: &Value| point["tests"].as_array().unwrap().len();
    let done: usize = envelope["result"]["points"].as_array().unwrap().iter().map(tests).sum();
    assert!((1..18).contains(&done) && output.status.code() == Some(130), "{done} tests, {:?}", output.status);
    assert!(envelope["caveats"].as_array().unwrap().iter().any(|caveat| caveat["code"] == "interrupted"));
}

#[test]
fn packet_trains_show_the_capacity() {
    let _machine = quiet();
    let Some(answered) = Answered::on_this_machine("trains", PATH) else { return };
    let arguments = ["udp", "server", "-b", "4M", "-l", "1400", "--burst", "8", "--wire", "-t", "4s", "--json"];
    let output = client(&answered, &[&arguments[..], &["--timestamps", "kernel"]].concat());
    let found = &object(&output.stdout)["result"]["capacity"];
    // 20 Mb/s at L1: of 1,486 bytes with UDP, IPv6, Ethernet and what L1 adds, 1,400 are payload.
    let payload = 20e6 * 1400.0 / 1486.0;
    let value = found["payload_bps"]["value"].as_f64().unwrap_or_else(|| panic!("{found:#}"));
    assert!((value / payload - 1.0).abs() < 0.05 && found["at_least"] == false, "{found:#}");
    assert!(found["trains"]["gaps"].as_u64().unwrap() > 500, "{found:#}");
}
