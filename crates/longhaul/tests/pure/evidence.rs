//! Evidence of faults as tests measured it: the rules name each fault by it, with its place and host.

use std::fs;
use std::path::Path;

use crate::common::{longhaul, object};

#[test]
fn each_fault_is_named_by_its_stored_evidence() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/evidence");
    let output = longhaul(&["lab", "run", "faults", "--json", "--replay", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let result = object(&output.stdout);
    let cells = result["result"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), fs::read_dir(&folder).unwrap().count());
    for cell in cells {
        // `null` where that is not asked of the fault. What one connection says in some seconds is no price.
        let asked: &[&str] = if cell["form"] == "test" { &["price_right"] } else { &[] };
        for right in ["place_right", "host_right"].iter().chain(asked) {
            assert_ne!(cell[right], false, "{right}: {cell:#}");
        }
        assert_eq!(cell["should_find"], true, "{cell:#}");
        assert_eq!((&cell["error"], &cell["right"]), (&"".into(), &true.into()), "{cell:#}");
    }
}

/// They are what is judged: the result of before goes with its diagnoses, but not where these are the input.
#[test]
fn a_result_does_not_take_the_place_of_the_diagnoses_that_it_is_made_of() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/evidence");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("judged-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let name = fs::read_dir(&stored).unwrap().next().unwrap().unwrap().file_name();
    fs::copy(stored.join(&name), folder.join(&name)).unwrap();
    let replay = || {
        let folder = folder.to_str().unwrap();
        longhaul(&["lab", "run", "faults", "--json", "--replay", folder, "-o", folder, "--force"])
    };
    let first = replay();
    assert!(first.status.success(), "{first:?}");
    let result = fs::read_to_string(folder.join("result.json")).unwrap();
    let second = object(&replay().stdout);
    assert_eq!(second["error"]["code"], "not_written", "{second}");
    assert!(folder.join(&name).exists());
    assert_eq!(fs::read_to_string(folder.join("result.json")).unwrap(), result);
    fs::remove_dir_all(&folder).unwrap();
}
