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
