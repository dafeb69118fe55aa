//! An experiment that is scaled to what this machine can do, which is found out first.

use std::fs;

use super::{Folder, ONCE, only_runs, unprivileged};
use crate::common::{alone, longhaul, object};
use longhaul_experiment::FACTORS;

/// By how much it was scaled is printed, stands in the result and on the page, and is so in the tests. Who goes on takes the factor that was found.
#[test]
fn an_experiment_tells_by_how_much_it_was_scaled() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let folder = Folder::new("calibrated");
    let command = ["lab", "run", "nlr-udp-loss", "--quick", "--only", "A small", "-o", folder.0.to_str().unwrap()];
    let run = |more: &[&str]| {
        let output = longhaul(&[&command[..], &ONCE[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    let result = object(&fs::read(folder.file("result.json")).unwrap());
    let factor = result["parameters"]["factor"].as_f64().unwrap();
    assert!(FACTORS.contains(&factor), "{factor}");
    let said = format!("rates, buffers, windows and queues: {factor} times what the experiment says");
    let finds_out = "finding out what this machine can do";
    assert!(text.contains(finds_out) && text.contains(&said), "{text}");
    // Of six rates the lowest and the highest.
    let rates: Vec<Option<u64>> =
        only_runs(&result["result"]["udp"][0]).iter().map(|run| run["rate_bps"].as_u64()).collect();
    assert_eq!(rates, [400e6, 2400e6].map(|bps| Some((bps * factor).round() as u64)), "{factor}");
    let page = fs::read_to_string(folder.file("report.html")).unwrap();
    let on_page = format!("Rates, buffers, windows and queues are {factor} times those of the experiment");
    let is_scaled = factor < 1.0;
    assert_eq!(page.contains(&on_page), is_scaled, "{factor}: {page}");

    let text = run(&["--resume"]);
    assert!(text.contains(&said) && !text.contains(finds_out), "{text}");
}
