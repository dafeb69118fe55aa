//! The catalogue of faults: a fault is made, diagnosed, kept and judged anew; nothing stays behind.

use std::fs;
use std::path::Path;

use crate::common::{alone, longhaul, object, quiet};
use longhaul_kernel::capability;
use serde_json::Value;

/// Runs `lab run faults` with `words` and gives its result.
fn faults(words: &[&str]) -> Value {
    let arguments: Vec<&str> =
        ["lab", "run", "faults", "--json", "--realtime", "10"].iter().chain(words).copied().collect();
    let output = longhaul(&arguments);
    assert!(output.status.success(), "{words:?}: {output:?}");
    object(&output.stdout)
}

/// A receiver with a small buffer is named, with its host and a price; tuning it keeps what was promised; the kept evidence says the same.
#[test]
fn a_small_receive_buffer_is_named() {
    let _machine = quiet();
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("faults are made as root: firewalls, queues, settings of a host");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}", std::process::id()));
    let words = ["--tune", "--only", "receive-buffer", "--seeds", "1", "--time", "10s", "-o", folder.to_str().unwrap()];
    let result = faults(&words);
    let cell = &result["result"]["cells"][0];
    assert_eq!(cell["error"], "", "{cell:#}");
    let first = &cell["named"][0];
    assert_eq!((&first["code"], &first["host"]), (&"receive_window".into(), &"receiver".into()), "{cell:#}");
    assert_eq!((&cell["right"], &cell["host_right"]), (&true.into(), &true.into()), "{cell:#}");
    // 256 KiB, of which the window has about half, over 80 ms.
    let goodput = cell["goodput_bps"].as_u64().unwrap();
    assert!((5_000_000..30_000_000).contains(&goodput), "{cell:#}");

    let tuned = &cell["tuned"];
    assert_eq!(tuned["kept"], true, "{cell:#}");
    let settings = tuned["settings"].as_array().unwrap();
    assert!(settings.iter().any(|one| one.as_str().unwrap().starts_with("receiver: net.ipv4.tcp_rmem ")), "{cell:#}");

    let replayed = faults(&["--replay", folder.to_str().unwrap()]);
    let without = |cell: &Value| {
        let mut cell = cell.clone();
        (cell["tuned"], cell["void_runs"]) = (Value::Null, 0.into());
        cell
    };
    assert_eq!(replayed["result"]["cells"][0], without(cell));
    assert_eq!(replayed["result"]["summary"]["single"], result["result"]["summary"]["single"]);
    fs::remove_dir_all(folder).unwrap();
}

/// One test of a program, seen by the kernels of both hosts and by a capture: each names the receiver's small buffer, as the fault's file
/// says. The kept evidence says the same.
#[test]
fn a_fault_is_named_without_a_test() {
    let _machine = quiet();
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("faults are made as root: firewalls, queues, settings of a host");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("observed-{}", std::process::id()));
    let words =
        ["--observe", "--only", "receive-buffer", "--seeds", "1", "--time", "8s", "-o", folder.to_str().unwrap()];
    let result = faults(&words);
    let cells = result["result"]["cells"].as_array().unwrap();
    let forms: Vec<&str> = cells.iter().map(|cell| cell["form"].as_str().unwrap()).collect();
    assert_eq!(forms, ["sender", "receiver", "packets"]);
    for cell in cells {
        assert_eq!((&cell["error"], &cell["right"]), (&"".into(), &true.into()), "{cell:#}");
        assert_eq!((&cell["should_find"], &cell["host_right"]), (&true.into(), &true.into()), "{cell:#}");
        assert_eq!(result["result"]["summary"]["without_test"][cell["form"].as_str().unwrap()]["right"], 1);
    }
    let replayed = faults(&["--replay", folder.to_str().unwrap()]);
    let named = |cells: &Value| {
        let mut named: Vec<String> = cells.as_array().unwrap().iter().map(|cell| cell["named"].to_string()).collect();
        named.sort();
        named
    };
    assert_eq!(named(&replayed["result"]["cells"]), named(&result["result"]["cells"]));
    fs::remove_dir_all(folder).unwrap();
}

/// With a router behind the path: what its policer costs is seen, and fixing it brings the path's rate back.
#[test]
fn fixing_a_policer_brings_what_it_cost() {
    let _alone = alone();
    if !capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("faults are made as root: firewalls, queues, settings of a host");
        return;
    }
    let result = faults(&["--measure", "--only", "policer-network", "--rtt", "10ms", "--seeds", "1", "--time", "3s"]);
    let price = &result["result"]["prices"][0];
    let bps = |key: &str| price[key][0].as_u64().unwrap_or_else(|| panic!("{price:#}"));
    let (faulty, fixed) = (bps("faulty_bps"), bps("fixed_bps"));
    // The policer passes 20 Mb/s and what its bucket holds: the tokens of a second (`nft_limit.c`).
    assert!((4_000_000..35_000_000).contains(&faulty) && fixed > 60_000_000, "{price:#}");
}
