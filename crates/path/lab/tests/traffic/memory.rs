//! Payload memory: bounded, refused beforehand where the bound is too low, and no more than the path holds.

use crate::common::datagrams::{SEGMENTS_MOST, Sink, Source};
use crate::common::{SERVER_V4, alone, assert_faithful, lab_with, path, settled, unprivileged};
use longhaul_emulator::{EngineError, RunningError};
use longhaul_kernel::memory::available;
use longhaul_lab::{Lab, LabError, LabSpec};
use longhaul_units::{BitRate, Bytes, Nanos};

const LONG: &str = "
    [[both]]
    rate = '1Gbit'
    delay = '200ms'";

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let bounded = |memory| Lab::up(LabSpec { memory: Some(memory), ..LabSpec::default() }, path(LONG));
    let error = bounded(Bytes(30_000_000)).unwrap_err();
    let LabError::Emulator(RunningError::Engine(EngineError::MemoryBound { needed, bound })) = error else {
        panic!("{error}")
    };
    assert_eq!(bound, Bytes(30_000_000));
    let product = BitRate::from_gbit(1).bytes_in(Nanos::from_millis(400));
    assert!(needed.0 > product, "{needed} for {product} bytes in flight");
    assert!(error.to_string().contains(&needed.to_string()), "{error}");
    // The figure is right: one byte less is refused, it is not.
    assert!(bounded(Bytes(needed.0 - 1)).is_err());
    bounded(needed).unwrap().down().unwrap();
}

/// A few lines of a path file leave the machine's memory to its other programs.
#[test]
fn most_of_the_memory_is_taken_only_where_that_is_asked_for() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    // Six tenths of it, as packets that are on the way for 10 s in both directions.
    let rate = BitRate(available().bytes.0 / 10 * 6 / 2 / 10 * 8);
    let huge = path(&format!("[[both]]\nrate = '{rate}'\ndelay = '10s'"));
    let error = Lab::up(LabSpec::default(), huge).unwrap_err();
    let LabError::Emulator(RunningError::Engine(EngineError::MostOfMemory { needed, available, .. })) = error else {
        panic!("{error}")
    };
    assert!(needed.0 > available.0 / 2 && needed < available, "{needed} of {available}");
    assert!(error.to_string().contains(&format!("start it with --memory {needed}")), "{error}");
}

#[test]
fn a_long_path_takes_little_more_than_its_product() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let lab = lab_with(LabSpec::default(), LONG);
    let product = BitRate::from_gbit(1).bytes_in(Nanos::from_millis(200));
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let bytes = 1448;
    // As many on the path as it holds.
    let window = product / (bytes as u64 + 66);
    Source::new(&lab, "client", SERVER_V4, bytes, SEGMENTS_MOST / 2).send_until(60_000, &sink, window);
    let status = settled(&lab);
    assert_faithful(&status);
    sink.finish().assert_complete(60_000);
    let used = status.memory[0];
    println!("at most {} bytes in use for a product of {product}, {} there", used.peak_bytes, used.capacity_bytes);
    assert!(used.peak_bytes > product * 8 / 10, "the path was not full: {used:?}");
    assert!(used.peak_bytes * 10 <= product * 13, "{used:?}");
    assert_eq!(used.used_bytes, 0, "all frames were given back");
    assert!(status.memory[1].peak_bytes <= 4 << 20, "nothing came back: {:?}", status.memory[1]);
}
