//! Which packets were lost, as Parquet files beside the results.

use std::fs::{self, File};

use longhaul_mesh::store::TestResult;
use longhaul_units::utc;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use crate::PATH;
use crate::common::Lab;

const TESTS: &str = "\
[[test]]
name = 'probes'
kind = 'udp'
every = '30s'
time = '1s'
rate = '4M'
length = 1000
";

/// Packets of each run of a file, all lost in the network.
fn runs(file: &std::path::Path) -> Vec<u64> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| {
        assert!(["network", "unexplained"].contains(&row.get_string(4).unwrap().as_str()), "{row}");
        row.get_ulong(2).unwrap()
    })
    .collect()
}

#[test]
fn a_site_keeps_which_packets_were_lost() {
    let Some(lab) = Lab::up("losses", PATH) else { return };
    let hosts = ["ithaca", "chicago"];
    let _coordinator = lab.mesh("chicago", &hosts, TESTS);
    lab.set("forward.loss=random(2%)");
    let run = |host: &str| {
        let allow = ["--allow", "time=1s", "--allow", "busy=100%", "--keep-losses", "1M"];
        lab.start(host, &[&["run", "--folder", host, "--sync", "1s"][..], &allow].concat())
    };
    let _sites = hosts.map(run);
    let mut archive = lab.archive();
    let own = |all: Vec<TestResult>, sender: &str| -> Vec<TestResult> {
        all.into_iter().filter(|test| test.sender == sender).collect()
    };
    let results = lab.wait("no results with losses", || {
        let all = archive.since(0).unwrap();
        let lossy = own(all.clone(), "ithaca").iter().filter(|test| test.lost > 0).count();
        (lossy >= 2 && !own(all.clone(), "chicago").is_empty()).then_some(all)
    });
    // The files are there before the results are delivered.
    for test in own(results.clone(), "ithaca") {
        let day = utc(test.at_ns);
        let file = lab.path("ithaca/losses").join(format!("day={}/{}.parquet", &day[..10], test.id));
        assert_eq!(file.is_file(), test.lost > 0, "{test:?}");
        if test.lost > 0 {
            assert_eq!(runs(&file).iter().sum::<u64>(), test.lost as u64, "{test:?}");
        }
    }
    // Nothing was lost in the other direction, and so nothing is kept.
    assert!(own(results, "chicago").iter().all(|test| test.lost == 0));
    assert!(fs::read_dir(lab.path("chicago/losses")).is_err());
}
