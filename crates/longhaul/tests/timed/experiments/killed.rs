//! Experiments that are killed: what is left, and going on.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use super::{Folder, sends, started, unprivileged};
use crate::common::{longhaul, object, side_by_side};
use longhaul_kernel::process::{Process, Signal};
use serde_json::Value;

/// Killed in its midst, an experiment goes on where it was: no run is made twice, and none is missing.
#[test]
fn a_killed_experiment_goes_on() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("killed");
    let file = folder.file("some.toml");
    let text =
        "title = 'some'\npath = 'lan'\nrepeat = 6\n[[udp]]\nname = 'some'\nrates = ['1M', '2M']\ntime = '100ms'\n";
    fs::write(&file, text).unwrap();
    let metrics = folder.file("run.prom");
    let told = ["--prometheus", metrics.to_str().unwrap()];
    let (mut run, mut lines) = started(&file, &folder, &[&["--tries", "1"][..], &told].concat());
    for number in 1..=3 {
        assert!(lines.by_ref().any(|line| line.unwrap().contains(", run ")), "run {number} is told");
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let left = fs::read_to_string(&metrics).unwrap();
    assert!(left.contains("longhaul_lab_run_all_runs{host=") && left.contains("\"} 12\n"), "{left}");
    let kept = || fs::read_to_string(folder.file("runs.jsonl")).unwrap();
    let before: Vec<String> = kept().lines().filter(|line| line.contains("began_at")).map(str::to_owned).collect();
    assert!((3..12).contains(&before.len()), "{} lines", before.len());
    is_shown_as_far_as_it_got(&folder, &before);
    // As a kill amid a line leaves it.
    let mut cut = fs::OpenOptions::new().append(true).open(folder.file("runs.jsonl")).unwrap();
    cut.write_all(b"{\"kind\":\"udp\",\"ser").unwrap();

    let again = |more: &[&str]| {
        longhaul(&[&["lab", "run", file.to_str().unwrap(), "-o", folder.0.to_str().unwrap()], more].concat())
    };
    let refused = again(&["--tries", "1"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("go on by --resume"), "{said}");
    let other = again(&["--tries", "1", "--resume", "--seed", "9"]);
    assert!(
        !other.status.success() && String::from_utf8(other.stderr).unwrap().contains("other options of the emulator")
    );
    // A factor that somebody wrote into it, and one of an experiment that is calibrated, which this is not.
    let whole = kept();
    for (factor, why) in [("1e300", "no calibration finds"), ("0.5", "made at 0.5 times the rates")] {
        let written = whole.replacen("\"factor\":1.0", &format!("\"factor\":{factor}"), 1);
        fs::write(folder.file("runs.jsonl"), written).unwrap();
        let scaled = again(&["--tries", "1", "--resume"]);
        let said = String::from_utf8(scaled.stderr).unwrap();
        assert!(!scaled.status.success() && said.contains(why), "{factor}: {said}");
    }
    fs::write(folder.file("runs.jsonl"), whole).unwrap();

    // What the killed one told Prometheus is replaced, and gone at the end.
    let output = again(&[&["--tries", "1", "--resume"][..], &told].concat());
    assert!(output.status.success() && !metrics.exists(), "{output:?}");
    let after: Vec<String> = kept().lines().filter(|line| line.contains("began_at")).map(str::to_owned).collect();
    assert_eq!(after.len(), 12);
    assert!(after[..before.len()] == before, "what was made stays");
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    for point in result["result"]["udp"][0]["points"].as_array().unwrap() {
        let all = [&point["runs"], &point["rejected"]].map(|runs| runs.as_array().unwrap().clone()).concat();
        let mut numbers: Vec<u64> = all.iter().filter_map(|run| run["repeat"].as_u64()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "{point:#}");
        // One that counts keeps what it did over time, and one before it that was rejected.
        let kept = [&point["runs"], &point["rejected"]]
            .map(|runs| runs.as_array().unwrap().iter().filter(|run| !run["over_time"].is_null()).count());
        assert!(kept != [0, 0] && kept.iter().all(|kept| *kept <= 1), "{kept:?}: {point:#}");
    }

    // Anew, and ended before its first run is over: what was measured before stays.
    let there = || ["runs.jsonl", "result.json", "report.html"].map(|name| fs::read(folder.file(name)).unwrap());
    let before = there();
    let (mut anew, lines) = started(&file, &folder, &["--force"]);
    let begun = Instant::now();
    while !sends(anew.id()) {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is sent");
        std::thread::sleep(Duration::from_millis(2));
    }
    Process::open(anew.id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(anew.wait().unwrap().code(), Some(130), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("the earlier result stays")), "{said:#?}");
    assert!(there() == before, "{said:#?}");
}

/// Result and page of a killed experiment are there, without a run or a part of one that was not made, and `report` shows them.
fn is_shown_as_far_as_it_got(folder: &Folder, kept: &[String]) {
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    assert_eq!(result["result"]["interrupted"], true);
    let points = result["result"]["udp"][0]["points"].as_array().unwrap();
    let of_point = |point: &Value| [&point["runs"], &point["rejected"]].map(|runs| runs.as_array().unwrap().clone());
    let runs: Vec<Value> = points.iter().flat_map(of_point).flatten().collect();
    assert!((1..=kept.len()).contains(&runs.len()), "{} of {} runs", runs.len(), kept.len());
    for run in &runs {
        let began_at = run["began_at"].as_str().unwrap();
        assert!(kept.iter().any(|line| line.contains(began_at)), "{began_at}: {kept:#?}");
        assert!(run["result"]["received_packets"].as_u64() > Some(0), "{run:#}");
    }
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    assert!(page.contains("was interrupted") && page.trim_end().ends_with("</html>"), "{page}");
    let shown = longhaul(&["report", folder.0.to_str().unwrap()]);
    assert!(shown.status.success(), "{shown:?}");
    // The row of a point that has runs begins with its label and what was sent, in Mb/s.
    let table = String::from_utf8(shown.stdout).unwrap();
    let measured = points.iter().filter(|point| of_point(point).iter().any(|runs| !runs.is_empty()));
    for label in measured.map(|point| point["label"].as_str().unwrap()) {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(label));
        let row = row.unwrap_or_else(|| panic!("no row of {label}: {table}"));
        let sent_mbit = row.split_whitespace().nth(1).and_then(|cell| cell.parse::<f64>().ok());
        assert!(sent_mbit > Some(0.0), "{row}");
    }
}
