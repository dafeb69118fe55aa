//! Experiments without root, and without the kernel's types (BTF): what can be measured is, and result and page say what is missing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use crate::common::captures::Folder;
use crate::common::{alone, object};
use longhaul_bpf::support::not_built;
use longhaul_kernel::capability;
use longhaul_testing::program::copy_program;
use serde_json::Value;

/// The number of the user `nobody`.
const NOBODY: u32 = 65_534;
/// What any user may measure.
const PLAIN: &str = "[[udp]]\nname = 'plain'\nrates = ['2M']\ntime = '200ms'\n";
/// What takes root.
const POLLED: &str = "[[udp]]\nname = 'polled'\nrates = ['2M']\ntime = '200ms'\npoll_interval = '20ms'\n";

fn is_root() -> bool {
    let is_root = capability::is_root_in_namespace();
    if !is_root {
        longhaul_testing::no_judge!("needs root, to be another user and to hide files");
    }
    is_root
}

/// Runs `series` once, into `results` of `folder`, by a binary that any user may start, behind the words `before`.
fn run(folder: &Folder, before: &[&str], series: &str) -> Output {
    let [binary, file, results] = ["longhaul", "some.toml", "results"].map(|name| folder.file(name));
    copy_program(env!("CARGO_BIN_EXE_longhaul"), &binary);
    fs::write(&file, format!("title = 'some'\npath = 'lan'\n{series}")).unwrap();
    for path in [folder.0.to_str().unwrap(), &file] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(&folder.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let lab_run = [binary.as_str(), "lab", "run", &file, "-o", &results, "--repeat", "1"];
    let words = [before, &lab_run].concat();
    Command::new(words[0]).args(&words[1..]).current_dir("/").output().unwrap()
}

/// The result and the page.
fn saved(folder: &Folder) -> (Value, String) {
    let read = |name: &str| fs::read_to_string(folder.0.join("results").join(name)).unwrap();
    (object(read("result.json").as_bytes()), read("report.html"))
}

/// The run of the only point of a series, and whether it counts: of those that other programs spoiled the first.
fn only_run(result: &Value, series: usize) -> (&Value, bool) {
    let point = &result["result"]["udp"][series]["points"][0];
    let counted = point["runs"].get(0);
    let run = counted.or_else(|| point["rejected"].get(0)).unwrap_or_else(|| panic!("no run: {point:#}"));
    (run, counted.is_some())
}

/// Fails unless the first series was measured, its losses were placed by counters because of `why`, and the page says both.
fn is_by_counters(result: &Value, page: &str, why: &str) {
    let (run, counts) = only_run(result, 0);
    let found = &run["result"];
    assert!(found["received_packets"].as_u64() > Some(0) && found["location_method"] == "counters", "{run:#}");
    let caveats = run["caveats"].as_array().unwrap().iter().filter(|caveat| caveat["code"] == "no_drop_events");
    let told: Vec<&str> = caveats.filter_map(|caveat| caveat["message"].as_str()).collect();
    assert!(told.len() == 2 && told.iter().all(|message| message.contains(why)), "both ends say so: {run:#}");
    assert!(page.contains("<td data-label=\"placed by\">counters</td>"), "{page}");
    assert!(page.contains("(counters)") && !page.contains("(bpf)"), "how it was measured: {page}");
    // The page begins with the caveats of runs that count.
    assert!(!counts || page.contains("no drop events"), "{page}");
}

/// In a user namespace of his own.
#[test]
fn an_ordinary_user_measures_what_he_may() {
    let _alone = alone();
    if !is_root() {
        return;
    }
    let folder = Folder::new("ordinary-user");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = run(&folder, &nobody, &[PLAIN, POLLED].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("user namespace") {
        longhaul_testing::skipped!("{}", said.trim());
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let (result, page) = saved(&folder);
    is_by_counters(&result, &page, "losses are located by counters alone");
    let (polled, _) = only_run(&result, 1);
    let error = &polled["error"];
    assert!(polled["result"].is_null() && error["code"] == "lab_failed", "{polled:#}");
    let why = "cannot have interface eth0 polled at intervals: ";
    assert!(error["message"].as_str().unwrap().starts_with(why), "{error:#}");
    // At the top with what to do, and in the table in place of numbers.
    for said in [
        "lab failed",
        "run as root",
        &format!("<li>polled, 2, run 1: {why}"),
        &format!("<td data-label=\"placed by\">{why}"),
        "<h3>polled</h3>\n<p class=\"quiet\">Not measured.</p>",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
}

/// They are not to be seen, so that no BPF program can be loaded.
#[test]
fn without_the_kernels_types_counters_place_losses() {
    let _alone = alone();
    if !is_root() {
        return;
    }
    if let Some(why) = not_built() {
        longhaul_testing::no_judge!("this build has no BPF programs: {why}");
        return;
    }
    let folder = Folder::new("no-btf");
    let hide = "{ [ ! -d /sys/kernel/btf ] || mount -t tmpfs none /sys/kernel/btf; } && exec \"$@\"";
    let output = run(&folder, &["unshare", "--mount", "sh", "-c", hide, "sh"], PLAIN);
    assert!(output.status.success(), "{output:?}");
    let (result, page) = saved(&folder);
    is_by_counters(&result, &page, "no type information at /sys/kernel/btf/vmlinux");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.starts_with("longhaul: caveat: ")), "{said}");
}
