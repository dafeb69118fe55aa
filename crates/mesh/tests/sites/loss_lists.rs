//! Which packets were lost, and samples of TCP, as Parquet files beside the results.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use longhaul_mesh::store::{Measured, Outbox, TestResult};
use longhaul_units::utc;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use crate::PATH;
use crate::common::Lab;

const TESTS: &str = "\
[[test]]
name = 'probes'
kind = 'udp'
every = '20s'
time = '1s'
rate = '4M'
length = 1000
";

/// Packets of each run of a file, lost in the network or, with an event of the kernel, at the receiving host.
pub(crate) fn runs(file: &Path) -> Vec<u64> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| {
        assert!(["network", "unexplained", "receiver_filter"].contains(&row.get_string(4).unwrap().as_str()), "{row}");
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

const TCP: &str = "\
[[test]]
name = 'bulk'
kind = 'tcp'
every = '20s'
time = '2s'
share = '5%'
";

/// Ten samples a second of both ends, in files that are bounded as those of losses. Nothing else is left of the test.
#[test]
fn a_site_keeps_samples_of_tcp() {
    let Some(lab) = Lab::up("samples", PATH) else { return };
    let hosts = ["ithaca", "chicago"];
    let _coordinator = lab.mesh("chicago", &hosts, TCP);
    // chicago keeps none.
    let keep = ["--keep-samples", "1M"];
    let run = |host: &str| {
        let allow = ["--allow", "tcp=100M", "--allow", "time=2s", "--allow", "busy=100%"];
        let keep: &[&str] = if host == "ithaca" { &keep } else { &[] };
        lab.start(host, &[&["run", "--folder", host, "--sync", "1s"], &allow[..], keep].concat())
    };
    let _sites = hosts.map(run);
    let mut archive = lab.archive();
    let results = lab.wait("no TCP in both directions", || {
        let all = archive.measurements(0).unwrap();
        hosts.iter().all(|host| all.iter().any(|one| one.sender == *host)).then_some(all)
    });
    let file = |host: &str, id: &str, at_ns: i64| {
        let day = utc(at_ns);
        lab.path(&format!("{host}/samples")).join(format!("day={}/{id}.parquet", &day[..10]))
    };
    let kept: Vec<_> = results.iter().filter(|one| file("ithaca", &one.id, one.at_ns).is_file()).collect();
    assert!(!kept.is_empty(), "{results:?}");
    for one in kept {
        let path = file("ithaca", &one.id, one.at_ns);
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let ends: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_string(0).unwrap().clone()).collect();
        let count = |end: &str| ends.iter().filter(|one| *one == end).count();
        for end in ["sender", "receiver"] {
            assert!((10..=40).contains(&count(end)), "{} samples of the {end}", count(end));
        }
        assert!(fs::metadata(&path).unwrap().len() < 200_000);
        assert!(matches!(one.measured, Measured::Tcp(_)), "{one:?}");
    }
    assert!(fs::read_dir(lab.path("chicago/samples")).is_err());
    let left = fs::read_dir(lab.path("ithaca")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("tcp-")).collect();
    // One may run now.
    assert!(left.len() <= 1, "{left:?}");
}

/// The files of a coordinator's folder by the ids of their tests. Each name is that of a file by site and day, and no id is there twice.
pub(crate) fn delivered(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = |folder: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.inspect(|path| assert!(path.file_name().unwrap().to_str().unwrap().starts_with(prefix))).collect()
    };
    let mut files = BTreeMap::new();
    let days = entries(folder, "site=").into_iter().flat_map(|site| entries(&site, "day="));
    for path in days.flat_map(|day| entries(&day, "")) {
        let id = path.file_name().unwrap().to_str().unwrap().strip_suffix(".parquet").unwrap().to_owned();
        assert!(files.insert(id, path).is_none(), "{files:?}");
    }
    files
}

/// The coordinator alone is told to keep files: sites learn it, deliver theirs, and keep nothing.
#[test]
fn the_coordinator_gets_what_its_sites_lost_and_sampled() {
    let Some(lab) = Lab::up("delivered", PATH) else { return };
    let hosts = ["ithaca", "chicago"];
    let keep = ["--keep-losses", "10M", "--keep-samples", "10M"];
    let _coordinator = lab.mesh_with("chicago", &hosts, &format!("{TESTS}{}", TCP.replace("20s", "60s")), &keep);
    lab.set("forward.loss=random(2%)");
    let _sites = hosts.map(|host| lab.site(host, &["tcp=100M", "time=2s", "busy=100%"]));
    let mut archive = lab.archive();
    let (udp, tcp, losses, samples) = lab.wait("no files", || {
        let [losses, samples] = ["hub/losses", "hub/samples"].map(|folder| delivered(&lab.path(folder)));
        let (udp, tcp) = (archive.since(0).unwrap(), archive.measurements(0).unwrap());
        (losses.len() >= 2 && samples.len() >= 2).then_some((udp, tcp, losses, samples))
    });
    // The result comes first: those of all files but a last one are there. A file comes within the same second.
    let lossy: Vec<_> = udp.iter().filter(|test| test.lost > 0 && losses.contains_key(&test.id)).collect();
    assert!(lossy.len() + 1 >= losses.len(), "{losses:?} {udp:?}");
    for test in lossy {
        assert_eq!(runs(&losses[&test.id]).iter().sum::<u64>(), test.lost as u64, "{test:?}");
    }
    assert!(udp.iter().all(|test| test.lost > 0 || !losses.contains_key(&test.id)));
    for (id, path) in &samples {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows = reader.metadata().file_metadata().num_rows();
        assert!((20..=80).contains(&rows), "{rows} samples of both ends");
        assert!(tcp.iter().all(|one| one.id != *id || matches!(one.measured, Measured::Tcp(_))), "{tcp:?}");
    }
    let shown = lab.run("chicago", &["show", "--folder", "hub"]);
    for folder in ["losses/site=*/day=*/*.parquet", "samples/site=*/day=*/*.parquet"] {
        assert!(shown.contains(folder), "{shown}");
    }
    for host in hosts {
        assert!(!lab.path(host).join("losses").exists() && !lab.path(host).join("samples").exists());
        let waiting = || Outbox::open(&lab.path(host).join("outbox")).unwrap().file_after(0, None).unwrap();
        lab.wait("a file waits for ever", || waiting().is_none().then_some(()));
    }
}
