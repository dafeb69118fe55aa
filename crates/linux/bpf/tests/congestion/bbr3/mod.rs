//! BBRv3: the C beside a model that is written from the draft, on paths in virtual time; and the draft's own example test cases.

mod anything;
mod cases;
mod model;
mod path;

use path::{Application, Flow, Path, WIDE};

pub(crate) use path::Row;

/// A path of few packets, one of many, a long one, a shallow queue, losses of either kind, ACKs that come together.
fn paths() -> Vec<(&'static str, Path, f64)> {
    vec![
        ("wide", WIDE, 12.0),
        ("slow", Path { base_rtt_us: 20_000.0, rate: 86.0, queue: 20.0, ..WIDE }, 12.0),
        ("fast", Path { rate: 200_000.0, queue: 8000.0, ..WIDE }, 1.0),
        ("long", Path { base_rtt_us: 600_000.0, queue: 5000.0, ..WIDE }, 20.0),
        ("short", Path { base_rtt_us: 500.0, rate: 40_000.0, queue: 60.0, ..WIDE }, 2.0),
        ("shallow", Path { queue: 86.0, ..WIDE }, 12.0),
        ("slots", Path { slot_us: 7_300.0, ..WIDE }, 12.0),
        ("loss", Path { loss: 0.01, ..WIDE }, 12.0),
        ("much loss", Path { loss: 0.05, ..WIDE }, 12.0),
        ("shallow, loss", Path { queue: 86.0, loss: 0.01, ..WIDE }, 12.0),
        ("long, loss", Path { base_rtt_us: 600_000.0, loss: 0.005, ..WIDE }, 20.0),
        ("no SACK", Path { queue: 86.0, loss: 0.001, sack: false, ..WIDE }, 12.0),
    ]
}

/// Window and pacing rate after each ACK are the model's, whatever the path does: within a packet, as the C counts rates in 2^-24. And what the
/// C finds of a packet's sending, which no kernel keeps, is what it was.
#[test]
fn the_c_does_what_the_draft_says() {
    for (name, path, seconds) in paths() {
        let mut flow = Flow::new(path);
        flow.run(seconds);
        let apart = flow.apart();
        let wrong = [flow.wrong_losses, flow.wrong_in_flight].map(|wrong| wrong as f64 / flow.judged as f64);
        println!(
            "{name}: {} ACKs, {} lost, {:.4} % apart; of losses {:.3} % wrong, of volumes in flight {:.3} %",
            flow.rows.len(),
            flow.lost,
            apart * 100.0,
            wrong[0] * 100.0,
            wrong[1] * 100.0
        );
        assert!(flow.rows.len() > 500, "{name}: {}", flow.rows.len());
        assert!(apart <= 0.001, "{name}: {:?}", flow.first_apart());
        // The list has 64 entries for a round trip, and as many for losses: hundreds of losses, and a window that changes fast, are too much for it.
        assert!(wrong[0] < 0.03 && wrong[1] < 0.1, "{name}: {wrong:?}");
    }
}

/// The same where the application stops and goes on, is slow, where a mark is told, all is lost for a time, and a loss was none.
#[test]
fn the_c_does_what_the_draft_says_whatever_happens() {
    for loss in [0.0, 0.003] {
        let mut flow = Flow::new(Path { loss, ..WIDE });
        flow.run(0.15);
        flow.application = Application::Rate(2000.0);
        flow.run(1.0);
        flow.application = Application::Bulk;
        flow.run(3.0);
        flow.application = Application::Nothing;
        flow.run(9.0);
        flow.application = Application::Bulk;
        flow.run(12.0);
        flow.run_while(|flow| !flow.is_open());
        flow.mark();
        flow.run(15.0);
        flow.path.loss = 1.0;
        flow.run(15.1);
        flow.path.loss = loss;
        flow.run(20.0);
        flow.path.loss = 0.2;
        flow.run(20.03);
        flow.path.loss = loss;
        flow.run_while(Flow::is_open);
        flow.undo();
        flow.run(25.0);
        let happened = |event: &str| flow.rows.iter().filter(|row| row.event == event).count();
        assert!(["restart", "timeout", "undo", "mark"].iter().all(|event| happened(event) > 0), "{loss}");
        let apart = flow.apart();
        println!("{} ACKs, {} lost, {:.4} % apart", flow.rows.len(), flow.lost, apart * 100.0);
        assert!(apart <= 0.001, "{loss}: {apart}, {:?}", flow.first_apart());
    }
}

/// Another value of any parameter is seen: the model has the draft's.
#[test]
fn each_parameter_changes_what_it_does() {
    let scenes: [fn(&mut Flow); 5] = [
        |flow| flow.run(8.0),
        |flow| {
            (flow.path.queue, flow.path.loss) = (60.0, 0.002);
            flow.run(3.0);
            flow.path.base_rtt_us *= 1.5;
            flow.run(16.0);
        },
        // 63 round trips are less than two seconds, and than a BDP has packets.
        |flow| {
            flow.path.base_rtt_us = 10_000.0;
            flow.run(3.0);
        },
        |flow| {
            flow.path.slot_us = 9_700.0;
            flow.run(6.0);
        },
        |flow| {
            flow.path.loss = 0.08;
            flow.run(2.0);
        },
    ];
    for parameter in longhaul_congestion::Algorithm::Bbr3.parameters() {
        let other = if parameter.most == 1 { 0 } else { parameter.paper * 3 + 1 };
        let set = format!("{}={}", parameter.name, other.min(parameter.most));
        let seen = scenes.iter().any(|scene| {
            let mut flow = Flow::with(WIDE, &[&set]);
            scene(&mut flow);
            flow.apart() > 0.0
        });
        assert!(seen, "{set} is as {}", parameter.paper);
    }
}

/// What `traces/` has of it: Startup, Drain, probes, idle time, a mark, a loss and an undo, a timeout, ProbeRTT.
pub(crate) fn trace() -> Vec<Row> {
    let mut flow = Flow::new(Path { base_rtt_us: 50_000.0, rate: 150.0, queue: 12.0, ..WIDE });
    flow.run(2.0);
    flow.application = Application::Nothing;
    flow.run(2.5);
    flow.application = Application::Bulk;
    flow.run(3.2);
    flow.run_while(|flow| !flow.is_open());
    flow.mark();
    flow.run(3.6);
    flow.path.loss = 0.5;
    flow.run_while(Flow::is_open);
    flow.path.loss = 0.0;
    flow.undo();
    flow.run(4.2);
    flow.path.loss = 1.0;
    flow.run(4.7);
    flow.path.loss = 0.0;
    flow.run(6.5);
    flow.rows
}
