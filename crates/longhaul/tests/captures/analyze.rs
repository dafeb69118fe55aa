//! `longhaul analyze` and `compare` on captures of lab traffic: the emulator's own losses are the truth, `tcptrace` and `tshark` are
//! the judges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::captures::{Capture, Folder, Tcptrace, json, missing, on, probes, total, tshark_count};
use crate::common::page::same_pages;
use crate::common::{TestLab, longhaul, object, printed};
use longhaul_testing::waiting::until;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, RowAccessor};
use serde_json::Value;

/// 5 ms there and 2 ms back; the forward hop loses each 100th packet.
const LOSSY: &str = "
name = 'lossy'
[[forward]]
rate = '1Gbit'
queue = '64MiB'
delay = '5ms'
loss = { every = 100 }
[[backward]]
delay = '2ms'
";
const FORWARD_NS: f64 = 5e6;
/// Payload of a full segment with time stamps.
const SEGMENT_BYTES: u64 = 1_448;
/// How near the delay is to be found.
const DELAY_ERROR_NS: f64 = 20_000.0;

fn lossy_lab(name: &str, folder: &Folder) -> Option<TestLab> {
    let path = folder.file("lossy.toml");
    fs::write(&path, LOSSY).unwrap();
    TestLab::up(name, &path)
}

/// All packets that the forward hop lost, by the emulator's word.
fn lost_by_the_emulator(lab: &TestLab) -> u64 {
    let status = json(&["lab", "status", "--name", &lab.name, "--json"]);
    let hops = status["result"]["hops"].as_array().unwrap();
    let of = |hop: &Value, why: &str| hop[why]["packets"].as_u64().unwrap();
    hops.iter().map(|hop| of(hop, "dropped_loss") + of(hop, "dropped_queue")).sum()
}

fn sequences(runs: &Value) -> BTreeSet<u64> {
    let runs = runs.as_array().unwrap().iter();
    runs.flat_map(|run| run["first_sequence"].as_u64().unwrap()..=run["last_sequence"].as_u64().unwrap()).collect()
}

#[test]
fn compare_finds_the_emulators_delay_and_each_lost_probe() {
    if missing("tcpdump") || missing("python3") {
        return;
    }
    let folder = Folder::new("compare-udp");
    let Some(lab) = lossy_lab("compare-udp", &folder) else { return };
    let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
    assert!(probes(&lab, 1050, 1, 0.5).status().unwrap().success());
    let [a, b] = captures.map(Capture::finish);

    let compared = json(&["compare", "--same-clock", "--port", "9000", "--json", &a, &b]);
    let forward = &compared["result"]["points"]["directions"][0];
    assert_eq!((forward["direction"].as_str(), forward["sent_packets"].as_u64()), (Some("a_to_b"), Some(1050)));
    let lost = sequences(&forward["lost"]);
    // Each 100th that passes the hop; what else passes moves the phase.
    assert_eq!(lost.len(), 10, "{lost:?}");
    let found: Vec<u64> = lost.iter().copied().collect();
    assert!(found.windows(2).all(|pair| (95..=100).contains(&(pair[1] - pair[0]))), "{lost:?}");
    let delay = &forward["delay"];
    println!("delay {delay}");
    let error = delay["min_ns"].as_f64().unwrap() - FORWARD_NS;
    assert!((0.0..DELAY_ERROR_NS).contains(&error), "{delay}");

    // The receiver's capture alone tells the same numbers.
    let alone = json(&["analyze", "--port", "9000", "--json", &b]);
    let probe = &alone["result"]["flows"][0]["forward"]["probe"];
    assert_eq!((probe["lost_packets"].as_u64(), probe["loss_runs"].as_u64()), (Some(10), Some(10)), "{probe}");
    assert_eq!((probe["unique_packets"].as_u64(), probe["cookie"].as_u64()), (Some(1040), Some(77)));

    // A run is like itself, and not like one of another spacing.
    let same = json(&["compare", "--behaviour", "--json", &a, &a]);
    let tests = same["result"]["behaviour"]["tests"].as_array().unwrap();
    assert!(tests.len() > 1 && tests.iter().all(|test| test["verdict"] != "outside"), "{same}");
    let text = printed(&["compare", "--behaviour", &a, &a]);
    assert!(text.starts_with("The two runs ") && text.contains("margin"), "the verdict first: {text}");
}

/// TCP with super-packets, of which the emulator takes single wire packets.
#[test]
fn each_lost_tcp_segment_is_found_between_the_points_and_sent_again() {
    if missing("tcpdump") || missing("iperf3") {
        return;
    }
    let folder = Folder::new("compare-tcp");
    let Some(lab) = lossy_lab("compare-tcp", &folder) else { return };
    let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
    let mut server = on(&lab, "server", &["iperf3", "-s", "-1"]).stdout(Stdio::null()).spawn().unwrap();
    // Asked without a packet: a connection that is refused would be in the captures.
    let listens = || on(&lab, "server", &["sh", "-c", "ss -ltn | grep -q :5201"]).status().unwrap().success();
    until("iperf3 to listen", listens);
    assert!(on(&lab, "client", &["iperf3", "-4", "-c", "server", "-n", "5M"]).output().unwrap().status.success());
    server.wait().unwrap();
    let [a, b] = captures.map(Capture::finish);
    let lost = lost_by_the_emulator(&lab);
    assert!(lost > 10, "{lost}");

    let compared = json(&["compare", "--same-clock", "--json", &a, &b]);
    let directions = compared["result"]["points"]["directions"].as_array().unwrap();
    let forward = &directions[0];
    assert_eq!(forward["lost_packets"], lost, "{:#}", compared["result"]["points"]["directions"]);
    assert_eq!((directions[1]["lost_packets"].as_u64(), forward["unknown_packets"].as_u64()), (Some(0), Some(0)));

    let [sent, received] = [&a, &b].map(|file| json(&["analyze", "--json", file]));
    let again = total(&sent, "retransmitted_wire_packets");
    // What came a second time. Its DSACK says so, unless the connection was reset before.
    let filled = total(&received, "retransmissions_of_unseen");
    let needless = total(&received, "retransmitted_wire_packets").saturating_sub(filled);
    assert!(total(&sent, "spurious_by_dsack") <= needless + 1, "{sent:#}");
    // iperf3 resets its connection at the end, so that some are never retransmitted.
    let never = total(&received, "missing_bytes").div_ceil(SEGMENT_BYTES);
    println!("{lost} lost: {again} retransmitted, {needless} of them needlessly, {never} never");
    // A lost acknowledgment needs no other. The reset cuts off what would say that the last retransmission was needless.
    assert!(again + never + 2 >= lost && again + never <= lost + needless + 1, "{again} and {never} of {lost}");
    // At the receiver a loss is a hole that a retransmission fills: none of it is reordering.
    assert_eq!(total(&received, "out_of_order_packets"), 0, "{received:#}");
    assert!((1..=again).contains(&filled), "{received:#}");
    for flow in received["result"]["flows"].as_array().unwrap() {
        assert!(flow["connection"]["opened"] == true && flow["connection"]["end"] != "open", "{flow:#}");
    }
    which_suffers(&a);
    shown_again(&["analyze", &b], &folder);
    shown_again(&["compare", &a, &b], &folder);
    shown_again(&["compare", "--behaviour", &a, &b], &folder);
    drawn_again(&a, &b, &folder);
    against_tcptrace(&b);
    against_tshark(&b);
    series_adds_up(&a, &folder);
    page_has_the_numbers(&a, &folder);
    in_a_browser(&a, &folder);
}

/// The milliseconds of the series are what the totals say: all payload, the fullest of them, the highest average over a second.
/// The connection with the data lost most, not the one that carried iperf3's commands; its first half has fewer packets.
fn which_suffers(capture: &str) {
    let worst = printed(&["analyze", "--worst", capture]);
    assert!(worst.contains("first cause") && worst.contains("lost most first"), "{worst}");
    let by =
        |what: &str| json(&["analyze", "--json", "--top", "1", "--sort", what, capture])["result"]["flows"][0].clone();
    let lost = by("loss");
    assert!(worst.contains(lost["client"].as_str().unwrap()), "{worst}");
    assert_eq!((&lost["flow"], &lost["flow"]), (&by("bytes")["flow"], &by("retransmits")["flow"]));
    let span = |flow: &Value| flow["last_ns"].as_i64().unwrap() - flow["first_ns"].as_i64().unwrap();
    assert!(span(&by("duration")) >= span(&lost));

    let all = json(&["analyze", "--json", capture]);
    let (first, last) = (&all["result"]["totals"]["first_ns"], &all["result"]["totals"]["last_ns"]);
    let half = (last.as_i64().unwrap() - first.as_i64().unwrap()) / 2;
    let to = format!("+{half}ns");
    let begin = json(&["analyze", "--json", "--to", &to, capture]);
    let end = json(&["analyze", "--json", "--from", &to, capture]);
    let packets = |of: &Value| of["result"]["totals"]["packets"].as_u64().unwrap();
    assert_eq!(packets(&begin) + packets(&end), packets(&all));
    assert!(packets(&begin) > 0 && packets(&end) > 0);
    assert_eq!(begin["parameters"]["to_ns"].as_i64(), Some(first.as_i64().unwrap() + half));
    let never =
        longhaul(&["analyze", "--json", "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z", capture]);
    assert_eq!(object(&never.stdout)["error"]["code"], "no_match");
}

fn series_adds_up(capture: &str, folder: &Folder) {
    let saved = folder.file("series");
    let result = json(&["analyze", "-o", &saved, "--json", capture]);
    let [first_ns, last_ns] = ["first_ns", "last_ns"].map(|at| result["result"]["totals"][at].as_i64().unwrap());
    let reader = SerializedFileReader::new(fs::File::open(Path::new(&saved).join("series.parquet")).unwrap()).unwrap();
    // By flow and direction: payload, its most in a millisecond, the highest average, round trips.
    let mut found: BTreeMap<(u64, bool), (i64, i64, i64, usize)> = BTreeMap::new();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let number = |name: &str| match row.get_column_iter().find(|(known, _)| *known == name).unwrap().1 {
            Field::Long(value) => Some(*value),
            Field::ULong(value) => Some(*value as i64),
            _ => None,
        };
        let payload = number("payload_bytes").unwrap();
        let at_ns = number("at_ns").unwrap();
        assert!(
            (first_ns / 1_000_000 * 1_000_000..=last_ns).contains(&at_ns),
            "{at_ns} is not in {first_ns} to {last_ns}"
        );
        let of = found.entry((number("flow").unwrap() as u64, row.get_bool(1).unwrap())).or_default();
        of.0 += payload;
        of.1 = of.1.max(payload);
        of.2 = of.2.max(number("rate_1s_bps").unwrap());
        of.3 += usize::from(number("rtt_ns").is_some());
    }
    let mut directions = 0;
    for flow in result["result"]["flows"].as_array().unwrap() {
        for (name, forward) in [("forward", true), ("backward", false)] {
            let (told, of) = (&flow[name], (flow["flow"].as_u64().unwrap(), forward));
            if told["payload_bytes"] == 0 {
                continue;
            }
            let (payload, most, average, round_trips) = found[&of];
            assert_eq!(
                (told["payload_bytes"].as_i64(), told["peak_1ms_bps"].as_i64()),
                (Some(payload), Some(most * 8000))
            );
            // All that passed within a second counts as long as that lasts, in steps of a tenth.
            let peak = told["peak_1s_bps"].as_f64().unwrap();
            assert!(average as f64 > 0.9 * peak && average <= payload * 8 * 10 / 9, "{average} {peak} {payload}");
            assert!(round_trips > 0, "{of:?}");
            directions += 1;
        }
    }
    assert!(directions > 1, "{result:#}");
}

/// What the page draws of the largest flow, as captured at its sender, and what the result says of it.
fn page_has_the_numbers(capture: &str, folder: &Folder) {
    let file = folder.file("numbers.html");
    let analysed = json(&["analyze", "--html", &file, "--json", capture]);
    let page = fs::read_to_string(&file).unwrap();
    let flow = &analysed["result"]["flows"][0];
    let [there, back] = [&flow["forward"], &flow["backward"]];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {flow:#}"));
    for told in [
        format!("{} packets in ", analysed["result"]["totals"]["packets"]),
        format!("{} bytes, ", there["payload_bytes"]),
    ] {
        assert!(page.contains(&told), "{told}: {page}");
    }

    let name = ["client", "server"].map(|end| flow[end].as_str().unwrap()).join(" to ");
    let (_, section) = page.split_once(&format!("<h2>tcp {name}</h2>")).unwrap_or_else(|| panic!("{name}: {page}"));
    let section = section.split("<h2>").next().unwrap();
    let data = |begins: &str| -> Vec<Value> {
        let parts = section.split(begins).skip(1).map(|part| part.split("</script>").next().unwrap());
        parts.map(|part| serde_json::from_str(part).unwrap()).collect()
    };
    let figures = data("<script type=\"application/json\">");
    let figure = |title: &str| {
        let of_title = |figure: &&Value| figure["title"].as_str().unwrap().starts_with(title);
        figures.iter().find(of_title).unwrap_or_else(|| panic!("{title}: {section}"))
    };
    let values = |list: &Value| -> Vec<u64> {
        list.as_array().unwrap().iter().filter_map(Value::as_f64).map(|value| value as u64).collect()
    };
    let band = |title: &str, edge: &str| values(&figure(title)["bands"][0][edge]);
    let most = |values: Vec<u64>| values.into_iter().max();
    assert_eq!(most(band("Rate", "high")), there["peak_1ms_bps"].as_u64());
    assert_eq!(most(band("Bytes in flight", "high")), there["tcp"]["max_in_flight_bytes"].as_u64());
    let sent = most(values(&figure("Sequence")["lines"][0]["values"])).unwrap();
    let beside_data = sent.checked_sub(number(&there["unique_bytes"]));
    assert!(matches!(beside_data, Some(1 | 2)), "SYN and FIN have a number each: {sent} {there:#}");
    // A millisecond with several round trips shows the last one.
    let rtt = &there["tcp"]["rtt"];
    let (least, longest) = (band("Round trip", "low").into_iter().min(), most(band("Round trip", "high")));
    assert!(least >= rtt["min_ns"].as_u64() && longest <= rtt["max_ns"].as_u64() && least <= longest, "{rtt:#}");

    // Each interval is in its surface.
    let counted = |id: &str| -> u64 {
        let surfaces = data(&format!("<script type=\"application/json\" id=\"{id}\">"));
        surfaces[0]["cells"].as_array().unwrap().chunks(3).map(|cell| number(&cell[2])).sum()
    };
    assert_eq!(counted("heat-0") + 1, number(&there["data_packets"]));
    let (acks, answers) = (counted("acks-0"), number(&back["packets"]) - number(&back["data_packets"]));
    assert!((1..answers).contains(&acks), "{acks} of {answers}");
}

/// A result that was saved, by `--json` or by `-o`, shows the text that the command prints.
fn shown_again(command: &[&str], folder: &Folder) {
    let text = printed(command);
    let file = folder.file("saved.json");
    fs::write(&file, printed(&[command, &["--json"]].concat())).unwrap();
    assert_eq!(printed(&["show", &file]), text);
    let saved = folder.file("saved");
    assert_eq!(printed(&[command, &["-o", &saved]].concat()), text);
    assert_eq!(printed(&["show", &saved]), text);
    fs::remove_dir_all(saved).unwrap();
}

/// What is drawn of a result that was saved: all but the surfaces, whose intervals are not saved.
fn drawn_again(a: &str, b: &str, folder: &Folder) {
    let pages = |command: &[&str]| {
        let [saved, page, again] = ["drawn", "drawn.html", "drawn-again.html"].map(|name| folder.file(name));
        printed(&[command, &["-o", &saved, "--html", &page, "--force"]].concat());
        printed(&["show", &saved, "--html", &again, "--force"]);
        fs::remove_dir_all(saved).unwrap();
        [page, again].map(|file| fs::read_to_string(file).unwrap())
    };
    let [page, again] = pages(&["compare", a, b]);
    assert!(again.contains("One-way delay"), "{again}");
    same_pages("compare", &page, &again);

    let [page, again] = pages(&["analyze", a]);
    let left_out =
        "<p class=\"quiet\">Intervals over time are left out: only the --html of longhaul analyze draws them.</p>\n";
    assert!(again.contains(left_out) && again.contains("data-figure=\"Rate\""), "{again}");
    // Without surfaces there are fewer scripts.
    let body = |page: &str| {
        let begins = page.split_once("<h1>").unwrap().1;
        begins.split("<script>").next().unwrap().to_owned()
    };
    let page = body(&page);
    let mut parts = page.split("<figure class=\"surface\">");
    let first = parts.next().unwrap().to_owned();
    let lines = parts.fold(first, |page, part| page + part.split_once("</script>\n").unwrap().1);
    assert!(lines.len() < page.len(), "{page}");
    same_pages("analyze", lines.trim_end(), body(&again).replace(left_out, "").trim_end());
}

/// The page's script runs under the page's own policy and paints every cell; lines have points.
fn in_a_browser(capture: &str, folder: &Folder) {
    if missing("chromium") {
        return;
    }
    let page = folder.file("page.html");
    printed(&["analyze", "--html", &page, capture]);
    let profile = format!("--user-data-dir={}", folder.file("profile"));
    let address = format!("file://{page}");
    // The page gets time of its own clock, however slow the machine is.
    let time = "--virtual-time-budget=5000";
    let arguments =
        ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", &profile, time, "--dump-dom", &address];
    let output = Command::new("timeout").arg("60").arg("chromium").args(arguments).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("data-painted=\""), "no script ran: {shown}");
    assert!(!shown.contains("data-painted=\"0\"") && shown.contains("<polyline"), "nothing is drawn");
}

fn against_tcptrace(file: &str) {
    let Some(theirs) = Tcptrace::of(file) else { return };
    let ours = json(&["analyze", "--top", "0", "--json", file]);
    let flows = ours["result"]["flows"].as_array().unwrap();
    assert_eq!(flows.len(), theirs.connections(), "connections");
    let summed = |of: &dyn Fn(&Value) -> u64| -> u64 {
        flows.iter().map(|flow| of(&flow["forward"]) + of(&flow["backward"])).sum()
    };
    for (name, ours) in [
        ("total_packets", summed(&|way| way["packets"].as_u64().unwrap())),
        ("actual_data_pkts", summed(&|way| way["data_packets"].as_u64().unwrap())),
        ("actual_data_bytes", summed(&|way| way["payload_bytes"].as_u64().unwrap())),
        ("unique_bytes_sent", summed(&|way| way["unique_bytes"].as_u64().unwrap())),
        ("rexmt_data_bytes", summed(&|way| way["tcp"]["retransmitted_bytes"].as_u64().unwrap())),
    ] {
        assert_eq!(theirs.sum(name), ours, "{name} of {file}");
    }
}

/// Wireshark's count of duplicate acknowledgments and zero windows.
fn against_tshark(file: &str) {
    if missing("tshark") {
        return;
    }
    let count = |filter: &str| tshark_count(file, filter);
    let ours = json(&["analyze", "--top", "0", "--json", file]);
    // Wireshark leaves out those whose window moved, though they have SACK blocks.
    let (theirs, sacked) = (count("tcp.analysis.duplicate_ack"), total(&ours, "sack_acks"));
    let own = total(&ours, "duplicate_acks");
    assert!(theirs <= own && own <= theirs + sacked, "duplicate acknowledgments: {own}, Wireshark {theirs}");
    assert_eq!(total(&ours, "zero_window_acks"), count("tcp.analysis.zero_window"), "zero windows");
}

#[test]
fn captures_are_read_packed_and_what_is_none_is_said() {
    let folder = Folder::new("analyze-files");
    let (plain, packed, folder_of) = (folder.file("one.pcap"), folder.file("two.pcap.gz"), folder.0.to_str().unwrap());
    let mut bytes = b"\x4d\x3c\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\x60\0\0\0\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 60, 0, 0, 0, 7, 7, 7]);
    fs::write(&plain, &bytes).unwrap();
    fs::copy(&plain, folder.file("two.pcap")).unwrap();
    assert!(Command::new("gzip").arg(folder.file("two.pcap")).status().unwrap().success());
    assert!(Path::new(&packed).exists());
    let both = json(&["analyze", "--json", folder_of]);
    let totals = &both["result"]["totals"];
    assert_eq!(
        (totals["packets"].as_u64(), totals["not_ip_packets"].as_u64(), totals["frame_bytes"].as_u64()),
        (Some(2), Some(2), Some(120))
    );
    assert_eq!(totals["first_ns"], 1_000_000_002_i64);

    let none = folder.file("none.txt");
    fs::write(&none, "GIF89a, not a capture").unwrap();
    let output = longhaul(&["analyze", "--json", &none]);
    assert_eq!((output.status.code(), object(&output.stdout)["error"]["code"].as_str()), (Some(1), Some("not_read")));
    let nothing = longhaul(&["compare", &plain, &packed]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("--behaviour"), "{nothing:?}");
}
