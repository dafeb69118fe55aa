//! Runs that were made earlier, what spoils a run, and being stopped.

use longhaul_kernel::clock::thread_cpu_time;
use longhaul_kernel::process::{Process, Signal};
use longhaul_kernel::wait::readable_until;
use longhaul_peer::caveats::RECEIVER_CPU_SATURATED;
use longhaul_report::html::points::Problems;
use longhaul_udp::{UdpReceiverReport, UdpResult, UdpSenderReport};

use super::plan::Choice;
use super::*;

/// The runs at 64 bytes, 1,000 of each point.
fn many() -> (Experiment, Plan) {
    let nima = Experiment::load("nima").unwrap();
    let choice = Choice { quick: true, only: vec!["64 bytes".into()], repeat: Some(1_000), ..Choice::default() };
    let plan = Plan::of(&nima, &choice, 1).unwrap();
    (nima, plan)
}

/// A journal of somebody else has all that it can have: it costs its length, and not that times the runs to be made.
#[test]
fn many_rejected_runs_are_counted_once() {
    let (nima, plan) = many();
    let ((series, point), ..) = plan.points().next().unwrap();
    let late = Caveat::of_error("emulator_late", "late", "");
    let run = |repeat: u32, rejected: Option<Caveat>| {
        let most = mix_report::Most {
            sent_packets_per_second: 1e6,
            refused_packets: 0,
            sender_ns_per_packet: 300.0,
            making_ns_per_packet: 100.0,
        };
        let problems = Problems::default();
        let run = mix_report::Run { rate_bps: None, time_ns: 1, at_rate: None, most: Some(most), problems };
        let run = Repeat { repeat, seed: 1, began_at: String::new(), emulator: None, run };
        Made::Mix(Box::new(MadeAt { series, point, rejected, run }))
    };
    let runs: Vec<Planned> = plan.runs().into_iter().filter(|run| (run.series, run.point) == (series, point)).collect();
    // How many runs count, were rejected, and are left.
    let seen = |ran: &Ran| {
        let point = &ran.mix[0].points[0];
        let left = runs.iter().filter(|run| !ran.tries_left(run).is_empty()).count();
        (point.runs.len(), point.rejected.len(), left)
    };
    let began = thread_cpu_time();
    let mut ran = Ran::new(&nima, &plan, 3);
    for repeat in (0..=1_001).chain(0..=1_001) {
        ran.add_earlier(&plan, run(repeat, Some(late.clone())));
    }
    ran.average();
    assert_eq!(seen(&ran), (0, 2_000, 1_000));
    assert!(!ran.mix[0].points[0].doubtful && !ran.mix[0].points[0].means.is_empty());
    // A run was rejected at each try: the others have had the one that they get.
    for _ in 0..=TRIES_MOST {
        ran.add_earlier(&plan, run(7, Some(late.clone())));
    }
    assert_eq!(seen(&ran), (0, 2_098, 0));
    assert!(ran.mix[0].points[0].doubtful);
    for _ in 0..2 {
        ran.add_earlier(&plan, run(8, None));
    }
    assert_eq!(seen(&ran), (1, 2_098, 998));
    let took = thread_cpu_time().saturating_sub(began);
    assert!(took < Nanos::from_secs(5), "{took}");
}

/// A UDP test with a result and these doubts about it.
fn doubted(doubts: &[CaveatCode]) -> udp_loss::Run {
    let (sender, receiver) = (UdpSenderReport::default(), UdpReceiverReport::default());
    let parameters = UdpParameters::default();
    let result = UdpResult::assemble(&parameters, &sender, &receiver).result;
    let caveats = doubts.iter().map(|code| Caveat::new(*code, "why", "")).collect();
    udp_loss::Run {
        rate_bps: 1_000_000,
        command: String::new(),
        parameters,
        result: Some(result),
        problems: Problems { error: None, caveats },
        exactness: None,
        between: None,
        over_time: None,
    }
}

/// A run whose CPUs others took is rejected for that, and not for what it did to the emulator; the run tells both.
#[test]
fn a_run_that_others_disturbed_does_not_count() {
    let others = || Some(Caveat::new(caveats::CPU_TAKEN, "other programs used 9 % of the machine's time", ""));
    let late = || vec![Caveat::of_error("emulator_late", "late", "")];
    let judged = |mut run: udp_loss::Run, others: Option<Caveat>, late: Vec<Caveat>, was_stopped: bool| {
        let why = spoiled(&mut run, others, late, was_stopped).map(|why| why.code);
        let told: Vec<String> = run.problems.caveats.into_iter().map(|caveat| caveat.code).collect();
        (why, told.join(" "))
    };
    let (whole, both) = (|| doubted(&[]), "emulator_late cpu_taken".to_owned());
    let for_code = |code: &str| Some(code.to_owned());
    assert_eq!(judged(whole(), others(), late(), false), (for_code("cpu_taken"), both.clone()));
    assert_eq!(judged(whole(), others(), Vec::new(), false), (for_code("cpu_taken"), "cpu_taken".into()));
    assert_eq!(judged(whole(), None, late(), false), (for_code("emulator_late"), "emulator_late".into()));
    assert_eq!(judged(whole(), None, Vec::new(), false), (None, String::new()));
    // It would not be better another time.
    assert_eq!(judged(whole(), others(), late(), true), (None, both.clone()), "it was stopped");
    let failed = udp_loss::Run { result: None, ..whole() };
    assert_eq!(judged(failed, others(), late(), false), (None, both), "it has no result");
}

/// Where a program of the experiment is what is measured, it uses them itself.
#[test]
fn cpus_that_other_programs_use_are_a_reason() {
    let why = taken(&Machine::of_others(), false).unwrap();
    assert!(why.is(caveats::CPU_TAKEN) && why.message.starts_with("other programs used "), "{why:?}");
    assert_eq!(taken(&Machine::of_others(), true), None);
}

#[test]
fn a_udp_run_whose_sender_missed_its_schedule_does_not_count() {
    for code in [PACING_NOT_ACHIEVED, SENDER_STOPPED, CLOCK_STEPPED] {
        let why = spoiled(&mut doubted(&[RECEIVER_CPU_SATURATED, code]), None, Vec::new(), false);
        assert_eq!(why.map(|why| why.code).as_deref(), Some(code.as_str()));
    }
    // What the receiver cannot keep up with is what the experiment measures.
    assert_eq!(spoiled(&mut doubted(&[RECEIVER_CPU_SATURATED]), None, Vec::new(), false), None);
}

/// Whoever stops it before its first run waits for none.
#[test]
fn a_stop_before_the_first_run_is_obeyed() {
    let (nima, plan) = many();
    let stop = Stop::install().unwrap();
    Process::open(std::process::id()).unwrap().unwrap().signal(Signal::INT).unwrap();
    // A signal may end the wait before it is known.
    while !readable_until(stop, None).unwrap() {}
    let programs = Programs { longhaul: "longhaul".into(), cpus: Vec::new() };
    let runner = Runner {
        spec: &LabSpec::default(),
        tries: 3,
        stop,
        save_losses: None,
        command: |_, _| String::new(),
        programs: &programs,
        server: None,
        tell: &|event: Event<'_>| panic!("{event:?}"),
    };
    let ran = runner.run(&nima, &plan, Ran::new(&nima, &plan, 3));
    Stop::release();
    assert!(!ran.has_result());
}
