//! The run before the first, which warms the machine up and does not count.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use super::unprivileged;
use crate::common::side_by_side;
use longhaul_experiment::faults::Programs;
use longhaul_experiment::{Choice, Event, Experiment, Plan, Ran, Runner};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_lab::LabSpec;
use longhaul_units::Nanos;

#[test]
fn a_run_that_does_not_count_warms_the_machine_up() {
    let _shared = side_by_side();
    if unprivileged() {
        return;
    }
    let text = "title = 'some'\npath = 'lan'\nrepeat = 2\n[[udp]]\nname = 'some'\nrates = ['1M']\ntime = '100ms'\n";
    let experiment = Experiment::parse(text, Path::new("")).unwrap();
    let plan = Plan::of(&experiment, &Choice::default(), 1).unwrap();
    let told = RefCell::new(Vec::new());
    let tell = |event: Event<'_>| {
        let what = match event {
            Event::WarmsUp => "warms up",
            Event::Begins { .. } => "begins",
            Event::Made { .. } => "made",
            Event::NotMeasured(why) => panic!("{why}"),
        };
        told.borrow_mut().push((what, monotonic()));
    };
    let spec = LabSpec { name: format!("warm-up-{}", std::process::id()), ..LabSpec::default() };
    let programs = Programs { longhaul: env!("CARGO_BIN_EXE_longhaul").into(), cpus: Vec::new() };
    let runner = Runner {
        spec: &spec,
        tries: 1,
        stop: Stop::install().unwrap(),
        save_losses: None,
        command: |_, _| String::new(),
        programs: &programs,
        server: None,
        tell: &tell,
    };
    let ran = runner.run(&experiment, &plan, Ran::new(&experiment, &plan, 1));
    let (what, at): (Vec<&str>, Vec<Nanos>) = told.take().into_iter().unzip();
    assert_eq!(what, ["warms up", "begins", "made", "begins", "made"]);
    // Its test is sent for 300 ms.
    assert!(at[1] - at[0] > Nanos::from_millis(300), "{at:?}");
    let point = &ran.udp[0].points[0];
    let numbers = point.runs.iter().chain(point.rejected.iter().map(|rejected| &rejected.run)).map(|run| run.repeat);
    assert_eq!(numbers.collect::<BTreeSet<u32>>(), BTreeSet::from([1, 2]));
    assert_eq!(point.runs.len() + point.rejected.len(), 2, "{point:#?}");
    // Where no run is left there is nothing to warm up for.
    runner.run(&experiment, &plan, ran);
    assert!(told.borrow().is_empty(), "{told:?}");
    Stop::release();
}
