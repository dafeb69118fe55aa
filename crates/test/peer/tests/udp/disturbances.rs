//! What goes wrong during a test.

use std::time::{Duration, Instant};

use longhaul_result::Location;
use longhaul_session::Message;
use longhaul_terms::TestDirection;
use longhaul_udp::{Pace, UdpParameters};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use nix::unistd::Pid;

use crate::capture::Capture;
use crate::hostile::ByHand;
use crate::hosts::*;

const PATH: &str = "[[both]]\ndelay = '1ms'\n";

/// For a minute, 1000 packets a second.
fn long(direction: TestDirection) -> UdpParameters {
    UdpParameters { pace: Pace::SpacingNs(1_000_000), direction, ..parameters(60_000) }
}

#[test]
fn a_receiver_that_is_killed() {
    if !able() {
        return;
    }
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let lab = lab(PATH);
        let (mut server, address) = serving_process(&lab, &[]);
        let flow = Capture::leaving(&lab, if direction == TestDirection::Forward { "client" } else { "server" });
        let mut client = testing_process(&lab, &[], address, &long(direction));
        until("packets", || flow.bulk() > 300);
        let (killed, left) = match direction {
            TestDirection::Forward => (&mut server, None),
            _ => (&mut client, Some(())),
        };
        killed.child.kill();
        let began = Instant::now();
        match left {
            None => assert_eq!(client.outcome().unwrap_err(), "control_lost"),
            Some(()) => assert_eq!(server.says("ended "), "control_lost"),
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

#[test]
fn a_sender_that_is_killed_leaves_the_server_free() {
    if !able() {
        return;
    }
    let lab = lab(PATH);
    let (mut server, address) = serving_process(&lab, &[]);
    for _ in 0..2 {
        let flow = Capture::leaving(&lab, "client");
        let mut client = testing_process(&lab, &[], address, &long(TestDirection::Forward));
        until("packets", || flow.bulk() > 300);
        client.child.kill();
        assert_eq!(server.says("ended "), "control_lost");
    }
    let end = test(&lab, address, parameters(500), |_| {}).unwrap();
    assert_eq!((result(&end, false).sent_packets, result(&end, false).lost_packets), (500, 0));
}

/// It takes the 20 s that a silent peer has (`limits::PEER_SILENCE`).
#[test]
fn a_client_that_falls_silent_is_given_up() {
    if !able() {
        return;
    }
    let lab = lab(PATH);
    let (mut server, address) = serving_process(&lab, &[]);
    let flow = Capture::leaving(&lab, "client");
    let client = testing_process(&lab, &[], address, &long(TestDirection::Forward));
    until("packets", || flow.bulk() > 300);
    kill(Pid::from_raw(client.child.0.id() as i32), Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    // Others are told to retry later.
    let busy = test(&lab, address, parameters(500), |_| {}).unwrap_err();
    assert_eq!(busy.code, "busy", "{busy:?}");
    while server.says("ended ") != "peer_silent" {}
    let took = began.elapsed();
    assert!((Duration::from_secs(15)..Duration::from_secs(40)).contains(&took), "{took:?}");
    assert!(test(&lab, address, parameters(500), |_| {}).is_ok());
}

/// What it does not acknowledge the server's kernel keeps for 3 s after its session, while another client has the turn; and nothing after that, whether
/// it had a test or not.
#[test]
fn a_client_that_acknowledges_nothing_is_reset_after_its_test() {
    if !able() {
        return;
    }
    let lab = lab(PATH);
    let (mut server, address) = serving_process(&lab, &[]);
    let client = &lab.host("client").unwrap().namespace;
    let resets = || counter(&lab, "server", "Tcp", "OutRsts");
    let granted = || {
        let mut control = ByHand::connect(address);
        control.granted_of(parameters(1_000));
        control
    };
    let greeted = || {
        let mut control = ByHand::connect(address);
        control.hear().expect("a greeting");
        control
    };
    for tested in [true, false] {
        let before = resets();
        let mut control = if tested { client.enter(granted) } else { client.enter(greeted) }.unwrap();
        // Nothing that the server says arrives any more.
        let rule = format!(
            "nft add table inet t; nft 'add chain inet t c {{ type filter hook input priority 0; }}'; \
             nft 'add rule inet t c tcp dport {} drop'",
            control.port()
        );
        if !on(&lab, "client", &rule) {
            return;
        }
        let began = Instant::now();
        // It is not the time for that.
        control.say(&Message::Start);
        let _next = tested.then(|| client.enter(granted).unwrap());
        assert!(began.elapsed() < Duration::from_secs(3), "the next one waits for the place, not for the turn");
        while server.says("ended ") != "protocol" {}
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        until("the reset", || resets() > before);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    until("all places to be free", || server.holds().0 <= 2);
}

#[test]
fn a_network_that_is_gone_for_five_seconds() {
    if !able() {
        return;
    }
    let lab = lab("[[both]]\ndelay = '1ms'\noutages = [{ at = '2s', for = '5s' }]\n");
    let (left, reached) = (Capture::leaving(&lab, "client"), Capture::reaching(&lab, "server"));
    let asked = UdpParameters { pace: Pace::SpacingNs(1_000_000), ..parameters(9_000) };
    let end = run(&lab, asked);
    let (left, reached) = (left.sequences(), reached.sequences());
    let result = result(&end, false);
    assert_eq!(left.len(), 9_000);
    assert_lost(&result, Location::Network, &(&left - &reached));
    assert_eq!(result.loss_periods.count, 1);
    assert!((4_000..=5_100).contains(&result.lost_packets), "{}", result.lost_packets);
}

/// Steps the machine's clock for a moment.
#[test]
#[ignore = "sets the clock of the whole machine for half a second: run it alone"]
fn a_clock_that_is_stepped() {
    if !able() {
        return;
    }
    let step = |seconds: i64| {
        let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
        clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec())).unwrap();
    };
    let lab = lab(PATH);
    for (there, after, expected) in [(true, false, true), (true, true, false), (false, false, false)] {
        let flow = Capture::leaving(&lab, "client");
        let (address, server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
        let outcome = std::thread::scope(|scope| {
            let client = scope.spawn(|| test(&lab, address, parameters(3_000), |_| {}));
            until("packets", || flow.bulk() > 300);
            if there {
                step(2);
            }
            if after {
                step(-2);
            }
            let outcome = client.join();
            if there && !after {
                step(-2);
            }
            outcome.unwrap()
        });
        server.join().unwrap();
        let (result, caveats) = assemble(&outcome.unwrap(), false);
        // Both ends see it, as they have one clock here.
        let told = caveats.iter().filter(|caveat| caveat.code == "clock_stepped").count();
        assert_eq!(told, if expected { 2 } else { 0 }, "{caveats:?}");
        // The figures come from a clock that does not step.
        assert_eq!(result.lost_packets, 0);
        assert!(result.duration_ns < 1_900_000_000, "{}", result.duration_ns);
    }
}
