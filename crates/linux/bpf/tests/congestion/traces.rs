//! `traces/`: what each control does in one flow, for other stacks to compare with. They are what the C does, and as their schema says.
//!
//! To write them anew: `WRITE_TRACES=1 cargo test --workspace --test congestion traces`.

use std::fmt::Write;
use std::path::PathBuf;

use longhaul_congestion::{Algorithm, Settings, Variant};
use serde_json::{Value, json};

use crate::bbr3;
use crate::native::{Event, Native, State};

/// `traces/trace.schema.json`.
const SCHEMA: &str = "longhaul.congestion-trace/1";
/// `traces/rate-trace.schema.json`: of a control that paces.
const RATE_SCHEMA: &str = "longhaul.congestion-rate-trace/1";

const COLUMNS: &[&str] = &[
    "at_us",
    "event",
    "acknowledged_packets",
    "sent_packets",
    "packets",
    "rtt_us",
    "cwnd_packets",
    "ssthresh_packets",
];
const RATE_COLUMNS: &[&str] = &[
    "at_us",
    "event",
    "delivered_packets",
    "lost_packets",
    "in_flight_packets",
    "packets",
    "prior_in_flight_packets",
    "rtt_us",
    "prior_delivered_packets",
    "interval_us",
    "app_limited",
    "cwnd_packets",
    "pacing_bytes_per_second",
];

/// Packets. Hybla would have millions after five round trips.
const MOST_WINDOW: u32 = 1000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../traces")
}

/// What happens to the flow, in order; times are from its beginning.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A round trip of so many microseconds, with ACKs for so many packets; whether the window limits the flow.
    RoundTrip {
        rtt_us: u32,
        packets: u32,
        limited: bool,
    },
    /// One packet was lost: recovery, over at once.
    Loss,
    /// ECN.
    Mark,
    /// The loss before was none.
    Undo,
    Timeout,
    /// Nothing is sent for so many microseconds.
    Idle(u64),
}

/// Slow start, losses, a queue, stretch ACKs, application limits, idle time, ECN, an undo, a timeout, a longer path.
fn script() -> Vec<Step> {
    let trips =
        |count: usize, rtt_us: u32, packets: u32| vec![Step::RoundTrip { rtt_us, packets, limited: true }; count];
    [
        trips(5, 120_000, 8),
        vec![Step::Loss],
        trips(12, 120_000, 45),
        trips(3, 150_000, 45),
        vec![Step::Loss],
        trips(10, 122_000, 99),
        vec![Step::RoundTrip { rtt_us: 120_000, packets: 45, limited: false }; 3],
        vec![Step::Idle(5_000_000)],
        trips(4, 120_000, 45),
        vec![Step::Mark],
        trips(4, 120_000, 20),
        vec![Step::Loss, Step::Undo],
        trips(4, 132_000, 45),
        vec![Step::Timeout],
        trips(6, 132_000, 10),
    ]
    .concat()
}

/// What shows each parameter: a slow start that ends in a queue, ACKs for one packet each, small queues and large ones, short round trips, losses
/// close to each other, a path that becomes longer, two timeouts.
fn all_that_matters() -> Vec<Step> {
    let trips = |count: usize, rtt_us: &[u32], packets: u32| -> Vec<Step> {
        let trip = |&rtt_us: &u32| Step::RoundTrip { rtt_us, packets, limited: true };
        rtt_us.iter().map(trip).collect::<Vec<_>>().repeat(count)
    };
    [
        trips(3, &[40_000], 1),
        trips(1, &[46_000, 52_000, 58_000, 64_000], 1),
        vec![Step::Loss],
        trips(8, &[40_000, 40_400, 41_500, 43_000, 46_000], 1),
        vec![Step::Loss],
        trips(3, &[41_000], 1),
        vec![Step::Loss, Step::Undo],
        trips(3, &[41_000], 1),
        vec![Step::Loss],
        trips(60, &[40_200], 2),
        vec![Step::Loss],
        trips(60, &[40_200], 2),
        vec![Step::Loss],
        trips(30, &[8_000, 8_900, 8_400], 1),
        vec![Step::Loss],
        trips(20, &[8_000], 1),
        vec![Step::Loss],
        trips(120, &[120_000], 3),
        vec![Step::Loss],
        trips(3, &[160_000], 3),
        vec![Step::Timeout],
        trips(12, &[120_000], 1),
        vec![Step::Timeout],
        trips(3, &[120_000], 1),
        vec![Step::Loss],
        trips(12, &[120_000], 1),
        vec![Step::Mark],
        trips(4, &[120_000], 1),
    ]
    .concat()
}

/// A row for each event: time, kind, cumulative packets acknowledged and sent, packets of this ACK, RTT; then window and threshold.
fn rows(settings: &Settings, script: Vec<Step>) -> Vec<Value> {
    let mut flow = Native::new(settings);
    flow.socket.srtt_8us = 120_000 * 8;
    flow.socket.cwnd_clamp = MOST_WINDOW;
    let start_us = flow.socket.time_us;
    flow.init();
    flow.socket.snd_nxt = flow.socket.cwnd;
    let mut rows = Vec::new();
    let mut say = |flow: &Native, kind: &str, packets: u32, rtt_us: u32| {
        let socket = &flow.socket;
        rows.push(json!([
            socket.time_us - start_us,
            kind,
            socket.snd_una,
            socket.snd_nxt,
            packets,
            rtt_us,
            socket.cwnd,
            socket.ssthresh
        ]));
    };
    let mut steps = script.into_iter().peekable();
    while let Some(step) = steps.next() {
        match step {
            Step::RoundTrip { rtt_us, packets, limited } => {
                let in_flight = (flow.socket.snd_nxt - flow.socket.snd_una).min(flow.socket.cwnd);
                let mut left = if limited { in_flight } else { in_flight.min(90) };
                flow.socket.is_cwnd_limited = u32::from(limited);
                flow.socket.max_packets_out = if limited { in_flight } else { 90 };
                flow.socket.srtt_8us = rtt_us * 8;
                let acks = left.div_ceil(packets);
                for _ in 0..acks {
                    let acked = left.min(packets);
                    left -= acked;
                    flow.socket.time_us += u64::from(rtt_us / acks);
                    flow.socket.snd_una += acked;
                    flow.socket.delivered += acked;
                    flow.acked(flow.socket.snd_una, acked, Some(rtt_us));
                    let sent = flow.socket.snd_una + if limited { flow.socket.cwnd } else { 90 };
                    flow.socket.snd_nxt = flow.socket.snd_nxt.max(sent);
                    say(&flow, if limited { "ack" } else { "ack_limited" }, acked, rtt_us);
                }
            }
            Step::Loss | Step::Mark => {
                flow.socket.prior_cwnd = flow.socket.cwnd;
                flow.socket.cwnd_cnt = 0;
                flow.socket.ssthresh = flow.ssthresh();
                flow.set_state(if matches!(step, Step::Loss) { State::Recovery } else { State::Cwr });
                flow.socket.cwnd = flow.socket.ssthresh;
                flow.event(Event::CompleteCwr);
                say(&flow, if matches!(step, Step::Loss) { "loss" } else { "mark" }, 0, 0);
                if matches!(steps.peek(), Some(Step::Undo)) {
                    continue;
                }
            }
            Step::Undo => {
                flow.socket.cwnd = flow.undo();
                flow.socket.ssthresh = flow.socket.ssthresh.max(flow.socket.prior_cwnd);
                say(&flow, "undo", 0, 0);
            }
            Step::Timeout => {
                flow.time_out();
                flow.socket.snd_nxt = flow.socket.snd_una + 1;
                say(&flow, "timeout", 0, 0);
            }
            Step::Idle(us) => {
                flow.socket.snd_una = flow.socket.snd_nxt;
                flow.socket.time_us += us;
                flow.event(Event::TxStart);
                flow.socket.snd_nxt = flow.socket.snd_una + flow.socket.cwnd;
                say(&flow, "restart", 0, 0);
            }
        }
        // The kernel tells of states that change.
        if !matches!(step, Step::RoundTrip { .. } | Step::Idle(_)) {
            flow.set_state(State::Open);
        }
    }
    rows
}

/// The same of a control that paces: what an ACK says of the rate, then window and pacing rate.
fn rate_rows() -> Vec<Value> {
    let row = |row: bbr3::Row| {
        let sample = row.sample;
        json!([
            row.at_us as u64,
            row.event,
            row.delivered,
            row.lost,
            row.in_flight,
            sample.acked,
            sample.prior_in_flight,
            sample.rtt_us.max(0),
            sample.prior_delivered,
            sample.interval_us.max(0),
            sample.is_app_limited,
            row.cwnd[0],
            row.pacing[0]
        ])
    };
    bbr3::trace().into_iter().map(row).collect()
}

/// The file's text: one event a line.
fn text(settings: &Settings) -> String {
    let (schema, columns, rows) = if settings.algorithm().measures_rate() {
        (RATE_SCHEMA, RATE_COLUMNS, rate_rows())
    } else {
        (SCHEMA, COLUMNS, rows(settings, script()))
    };
    let parameters = settings.algorithm().parameters().iter().zip(settings.values());
    let parameters: serde_json::Map<_, _> =
        parameters.map(|(parameter, value)| (parameter.name.to_owned(), json!(value))).collect();
    let head = json!({
        "schema": schema,
        "control": settings.algorithm().name(),
        "source": settings.algorithm().source(),
        "variant": settings.variant().name(),
        "parameters": parameters,
        "columns": columns,
    });
    let mut text = head.to_string();
    text.pop();
    text += ",\"events\":[";
    for (index, row) in rows.iter().enumerate() {
        write!(text, "{}\n{row}", if index == 0 { "" } else { "," }).unwrap();
    }
    text + "\n]}\n"
}

fn all() -> impl Iterator<Item = Settings> {
    let variants = Algorithm::ALL.into_iter().flat_map(|one| [(one, Variant::Paper), (one, Variant::Linux)]);
    variants.filter_map(|(algorithm, variant)| Settings::new(algorithm, variant).ok())
}

#[test]
fn traces_are_what_the_controls_do() {
    let write = std::env::var_os("WRITE_TRACES").is_some();
    let mut names = Vec::new();
    for settings in all() {
        let name = format!("{}-{}.json", settings.algorithm().name(), settings.variant().name());
        let text = text(&settings);
        if write {
            std::fs::write(folder().join(&name), &text).unwrap();
        }
        let kept = std::fs::read_to_string(folder().join(&name)).unwrap_or_default();
        let differs = kept.lines().zip(text.lines()).position(|(one, other)| one != other);
        assert!(kept == text, "traces/{name}, line {differs:?}: write them anew (see the head of this file)");
        names.push(name);
    }
    // Nothing else lies there.
    let mut there: Vec<String> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    there.retain(|name| !["README.md", "trace.schema.json", "rate-trace.schema.json"].contains(&name.as_str()));
    there.sort();
    names.sort();
    assert_eq!(there, names);
}

/// Parameters that these scripts do not reach. The first three have tests of their own; of the others none turns red where they are not heeded.
const NOT_REACHED: [&str; 11] = [
    "lh_bic unknown_most_each",
    "lh_fast pacing",
    "lh_westwood halve_in_recovery",
    "lh_bic scale_by_ack_ratio",
    "lh_bic update_us",
    "lh_illinois slow_start_ends_ack",
    "lh_illinois_l slow_start_ends_ack",
    "lh_yeah undo_memory",
    "lh_yeah zeta",
    "lh_yeah_l undo_memory",
    "lh_yeah_l zeta",
];

/// With another value of a parameter the control does something else: none is without effect, so that one which the C does not heed is seen.
/// That its values are the right ones is for the papers' tests, the models and the oracle to say.
#[test]
fn each_parameter_has_its_effect() {
    let mut without = Vec::new();
    for settings in all().filter(|settings| !settings.algorithm().measures_rate()) {
        let table = |settings: &Settings| settings.table().ok().map(|rows| format!("{rows:?}"));
        let scripts = [script(), all_that_matters()];
        let plain = scripts.each_ref().map(|script| rows(&settings, script.clone()));
        for (parameter, &value) in settings.algorithm().parameters().iter().zip(settings.values()) {
            let others = [value / 2, value.saturating_mul(2).max(1), 0, 1, value / 100, 100, parameter.most];
            let others = others.into_iter().filter(|other| *other != value && *other <= parameter.most);
            let differs = |other: u32| {
                let mut changed = settings.clone();
                changed.set(&format!("{}={other}", parameter.name)).unwrap();
                let (was, is) = (table(&settings), table(&changed));
                is.is_some()
                    && (is != was
                        || scripts.iter().zip(&plain).any(|(script, plain)| rows(&changed, script.clone()) != *plain))
            };
            if !others.into_iter().any(differs) {
                without.push(format!("{} {}", settings.name(), parameter.name));
            }
        }
    }
    without.sort();
    let mut expected = NOT_REACHED.map(str::to_owned);
    expected.sort();
    assert_eq!(without, expected);
}

/// What they say is plausible to one who reads them with the rules alone: a window grows by no more than is acknowledged (Hybla apart), and not at
/// all where the application limits the flow; a loss makes it smaller, and an undo brings it back.
#[test]
fn traces_keep_the_rules() {
    for settings in all().filter(|settings| !settings.algorithm().measures_rate()) {
        let rows = rows(&settings, script());
        let number = |row: &Value, column: usize| row[column].as_u64().unwrap();
        let mut before: &Value = &json!([0, "start", 0, 10, 0, 0, 10, 0x7fff_ffff]);
        let mut before_loss = 0;
        for row in &rows {
            let (was, is) = (number(before, 6), number(row, 6));
            let what = format!("{}: {before} then {row}", settings.name());
            match row[1].as_str().unwrap() {
                "ack" if settings.algorithm() != Algorithm::Hybla => assert!(is <= was + number(row, 4), "{what}"),
                "ack" => {}
                "ack_limited" => assert!(is <= was, "{what}"),
                // Westwood+ keeps what the path carries, which may be all.
                "loss" | "mark" => {
                    assert!(is <= was || settings.algorithm() == Algorithm::Westwood, "{what}");
                    assert_eq!(number(row, 7), is, "{what}");
                    before_loss = was;
                }
                "undo" => assert_eq!(is, before_loss, "{what}"),
                "timeout" => assert!(is == 1 && number(row, 7) >= 2, "{what}"),
                "restart" => assert!(is <= was, "{what}"),
                other => panic!("{other}"),
            }
            before = row;
        }
        assert!(rows.len() > 50, "{}", rows.len());
    }
}

/// Of BBRv3: an ACK adds no more than it acknowledges but where a recovery or ProbeRTT ends, what it says is a rate that the path has, and each
/// kind of event is there.
#[test]
fn the_trace_of_rates_keeps_the_rules() {
    let rows = rate_rows();
    let number = |row: &Value, column: usize| row[column].as_u64().unwrap();
    for event in ["ack", "restart", "mark", "timeout", "undo"] {
        assert!(rows.iter().any(|row| row[1] == event), "{event}");
    }
    let mut most = 10;
    for pair in rows.windows(2) {
        let (before, row) = (&pair[0], &pair[1]);
        most = most.max(number(before, 11));
        assert!(number(row, 11) <= most + number(row, 5), "{before} then {row}");
        assert!(number(row, 11) >= 4 || row[1] == "timeout", "{row}");
        let (delivered, interval_us) = (number(row, 2).saturating_sub(number(row, 8)), number(row, 9));
        // A packet more than the path's 150 a second.
        assert!(interval_us == 0 || (delivered - 1) * 1_000_000 <= 151 * interval_us, "{row}");
    }
}
