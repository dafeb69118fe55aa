use std::collections::HashSet;

use super::*;

#[test]
fn a_star_is_a_number() {
    assert!(matches("rx_queue_*_drops", "rx_queue_0_drops"));
    assert!(matches("rx_queue_*_drops", "rx_queue_117_drops"));
    assert!(!matches("rx_queue_*_drops", "rx_queue__drops"));
    assert!(!matches("rx_queue_*_drops", "rx_queue_1_drops_more"));
    assert!(!matches("rx*_drops", "rx_1_drops"));
    assert!(matches("rx_missed", "rx_missed"));
    assert!(!matches("rx_missed", "rx_missed_errors"));
}

#[test]
fn each_counter_has_one_row() {
    let mut seen = HashSet::new();
    for row in ROWS.iter() {
        assert!(seen.insert((row.driver, row.pattern)), "{} {} twice", row.driver, row.pattern);
        let example = row.pattern.replace('*', "7");
        let all: Vec<_> =
            ROWS.iter().filter(|other| other.driver == row.driver && matches(other.pattern, &example)).collect();
        assert_eq!(all.len(), 1, "{example} of {} means several things: {all:?}", row.driver);
    }
}

#[test]
fn no_meaning_without_a_source() {
    for row in ROWS.iter() {
        let (file, symbol) = row.source.split_once(' ').unwrap_or_else(|| panic!("{row:?} names no symbol"));
        assert!(file.starts_with("drivers/net/") || file.starts_with("Documentation/"), "{row:?}");
        assert!(file.contains('.') && !symbol.trim().is_empty(), "{row:?}");
    }
}

#[test]
fn patterns_are_names() {
    for row in ROWS.iter() {
        // Some drivers have spaces, brackets and colons in their names.
        let good = |c: char| c.is_ascii_alphanumeric() || " _-.*[]():".contains(c);
        assert!(!row.pattern.is_empty() && row.pattern.len() <= 31 && row.pattern.chars().all(good), "{row:?}");
        assert!(!row.pattern.contains("**"), "{row:?}");
    }
}

#[test]
fn a_part_has_its_whole() {
    for row in ROWS.iter() {
        if let Some(whole) = row.part_of {
            let whole = ROWS.iter().find(|other| other.driver == row.driver && other.pattern == whole);
            assert!(whole.is_some_and(|whole| whole.part_of.is_none()), "{row:?}");
        }
    }
}

#[test]
fn every_promised_driver_is_there() {
    let mut drivers: Vec<&str> = ROWS.iter().map(|row| row.driver).collect();
    drivers.dedup();
    for driver in [
        "ixgbe",
        "i40e",
        "ice",
        "igb",
        "e1000e",
        "mlx4_en",
        "mlx5_core",
        "bnxt_en",
        "ena",
        "virtio_net",
        "vmxnet3",
        "veth",
    ] {
        assert!(drivers.contains(&driver), "{driver}");
    }
    let unique: HashSet<_> = drivers.iter().collect();
    assert_eq!(unique.len(), drivers.len(), "rows of one driver stand together");
}

proptest::proptest! {
    #[test]
    fn no_name_panics(name in "\\PC{0,40}") {
        for known in ROWS.iter() {
            let _ = row(known.driver, &name);
        }
    }
}
