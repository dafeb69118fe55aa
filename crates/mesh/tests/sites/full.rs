//! The disk of a site is full: it goes on, and what it measured is delivered when there is room.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::PATH;
use crate::common::Lab;

const TESTS: &str = "\
[[test]]
name = 'delay'
kind = 'rtt'
time = '5s'
between = ['ithaca', 'chicago']
";

/// A small disk, which goes with this value.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k,mode=700", "mesh-full"])
            .arg(&at)
            .output()
            .unwrap();
        if !mount.status.success() {
            longhaul_testing::no_judge!("no tmpfs: {}", String::from_utf8_lossy(&mount.stderr).trim());
            return None;
        }
        Some(Self(at))
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let mut number = 0;
        for size in [4096, 64] {
            while fs::write(self.0.join(format!("filler-{number}")), vec![0; size]).is_ok() {
                number += 1;
            }
        }
    }

    fn empty(&self) {
        let fillers = fs::read_dir(&self.0).unwrap().filter_map(Result::ok);
        fillers
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("filler-"))
            .for_each(|entry| fs::remove_file(entry.path()).unwrap());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_delays_results_and_loses_none() {
    let Some(lab) = Lab::up("full", PATH) else { return };
    let Some(disk) = Disk::mount(lab.path("ithaca")) else { return };
    let mut coordinator = lab.mesh("chicago", &["ithaca", "chicago"], TESTS);
    let mut site = lab.site("ithaca", &[]);
    let _other = lab.site("chicago", &[]);
    let mut archive = lab.archive();
    let before = lab.wait("no result", || Some(archive.measurements(0).unwrap().len()).filter(|count| *count > 0));
    // A measurement runs; the coordinator is away, so its result needs the disk.
    coordinator.kill();
    disk.fill();
    let said = || lab.logs().contains("a result is kept in memory");
    lab.wait("it does not say that the disk is full", || said().then_some(()));
    assert!(site.0.try_wait().unwrap().is_none(), "the site ended\n{}", lab.logs());
    disk.empty();
    let _coordinator = lab.coordinator("chicago");
    lab.wait("what was measured while the disk was full is missing", || {
        (archive.measurements(0).unwrap().len() > before + 1).then_some(())
    });
    site.kill();
    let mut begins: Vec<i64> = archive.measurements(0).unwrap().iter().map(|one| one.at_ns).collect();
    begins.sort();
    println!("{:?} ms apart", begins.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect::<Vec<_>>());
}
