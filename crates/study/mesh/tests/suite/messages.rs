//! What sites and coordinator say to each other: it reads back, of older and newer ones too, and no bytes are a panic.

use longhaul_mesh_model::message::Message;
use longhaul_mesh_model::result::{
    CAUSES_MOST, Cause, Diagnosis, FileKind, Measured, Measurement, Quantiles, RoundTrips, TEXT_MOST, TcpFlow,
    TestFile, TestResult, Wanted,
};
use proptest::prelude::*;

const ID: &str = "0123456789abcdef0123456789abcdef";

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9._-]{0,39}"
}

fn result() -> impl Strategy<Value = TestResult> {
    (name(), name(), 0..=i64::MAX, 0..=i64::from(u32::MAX), 0.0..=1.0, any::<bool>()).prop_map(
        |(sender, receiver, at_ns, sent, share, placed)| {
            let lost = (sent as f64 * share) as i64;
            TestResult {
                id: ID.into(),
                test: "probes".into(),
                sender,
                receiver,
                at_ns,
                sent,
                lost,
                at_sender: placed.then_some(0),
                at_receiver: placed.then_some(lost),
                received_rate_bps: at_ns,
            }
        },
    )
}

fn measured() -> impl Strategy<Value = Measured> {
    let number = || 0..=i64::MAX;
    let trips = (number(), 0..=i64::from(u32::MAX), proptest::option::of(proptest::array::uniform5(number())))
        .prop_map(|(duration_ns, sent, quantiles)| {
            let quantiles = quantiles.map(|mut all| {
                all.sort();
                let [min_ns, p50_ns, p90_ns, p99_ns, max_ns] = all;
                Quantiles { min_ns, p50_ns, p90_ns, p99_ns, max_ns }
            });
            let (outages, longest_outage_ns, gaps_ns) = (sent / 2, duration_ns, duration_ns / 2);
            Measured::Rtt(RoundTrips {
                duration_ns,
                sent,
                lost: sent / 3,
                quantiles,
                outages,
                longest_outage_ns,
                gaps_ns,
            })
        });
    let flow = (number(), proptest::option::of(number()), 0.0..=1.0).prop_map(|(bytes, optional, limited_share)| {
        Measured::Tcp(TcpFlow {
            duration_ns: 1,
            bytes,
            goodput_bps: bytes,
            paced_bps: bytes,
            retransmits: bytes % (1 << 32),
            retransmitted_bytes: optional,
            min_rtt_ns: optional,
            congestion_control: "cubic".into(),
            limited_by: "congestion_window".into(),
            limited_share,
        })
    });
    let cause = (proptest::option::of(number()), "[ -~]{0,600}").prop_map(|(bound_bps, remedy)| Cause {
        code: "loss".into(),
        place: String::new(),
        bound_bps,
        remedy,
    });
    let diagnosis = (proptest::collection::vec(cause, 0..=CAUSES_MOST), proptest::option::of("[ -~]{0,600}")).prop_map(
        |(causes, failed)| {
            Measured::Diagnose(Diagnosis { alarm: ID.into(), target_bps: None, goodput_bps: Some(1), causes, failed })
        },
    );
    prop_oneof![trips, flow, diagnosis]
}

fn measurement() -> impl Strategy<Value = Measurement> {
    (name(), measured()).prop_map(|(sender, measured)| Measurement {
        id: ID.into(),
        test: "delay".into(),
        sender,
        receiver: "geneva".into(),
        at_ns: 0,
        measured,
    })
}

fn message() -> impl Strategy<Value = Message> {
    let words = || (any::<u64>(), name(), name());
    prop_oneof![
        name().prop_map(|key| Message::Join { key }),
        (proptest::collection::vec(result(), 0..4), proptest::collection::vec(measurement(), 0..4))
            .prop_map(|(results, measurements)| Message::Deliver { results, measurements }),
        words().prop_map(|(number, sender, receiver)| Message::Ask { number, test: "bulk".into(), sender, receiver }),
        words().prop_map(|(now_ns, state, sender)| Message::Mesh {
            file: Some(state.clone()),
            members: None,
            files: vec![FileKind::Losses, FileKind::Samples],
            wanted: vec![Wanted { alarm: ID.into(), test: state.clone(), sender, receiver: "geneva".into() }],
            state,
            now_ns,
        }),
        words().prop_map(|(number, sender, content)| Message::DeliverFile {
            file: TestFile {
                of: if number % 2 == 0 { FileKind::Losses } else { FileKind::Samples },
                id: ID.into(),
                test: "bulk".into(),
                sender,
                receiver: "geneva".into(),
                at_ns: (number / 2) as i64,
                content,
            },
        }),
        any::<u16>().prop_map(|port| Message::Granted { port, key: "key".into() }),
        any::<u64>().prop_map(|retry_after_ns| Message::Busy { retry_after_ns }),
        (any::<u64>(), any::<bool>()).prop_map(|(number, unused)| Message::Release { number, unused }),
        Just(Message::Leased),
        Just(Message::Released),
        "\\PC{0,40}".prop_map(|message| Message::Refused { message }),
    ]
}

proptest! {
    #[test]
    fn a_message_reads_back(message in message()) {
        let text = serde_json::to_string(&message).unwrap();
        prop_assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }

    /// What is generated makes sense; one number that does not is found.
    #[test]
    fn what_makes_no_sense_is_found(result in result(), measurement in measurement()) {
        prop_assert!(result.is_sound() && measurement.is_sound(), "{result:?} {measurement:?}");
        let more_lost = TestResult { lost: result.sent + 1, ..result.clone() };
        prop_assert!(!more_lost.is_sound());
        let line_break = TestResult { sender: "a\nb".into(), ..result };
        prop_assert!(!line_break.is_sound());
        let broken = Measurement { measured: broken(measurement.measured.clone()), ..measurement };
        prop_assert!(!broken.is_sound(), "{broken:?}");
    }

    #[test]
    fn no_bytes_are_a_panic(at in 0..400_usize, with in proptest::collection::vec(any::<u8>(), 0..6), message in message()) {
        let mut bytes = serde_json::to_vec(&message).unwrap();
        let at = at.min(bytes.len());
        bytes.splice(at..(at + 2).min(bytes.len()), with);
        if let Ok(Message::Deliver { results, measurements }) = serde_json::from_slice(&bytes) {
            let _ = results.iter().all(TestResult::is_sound);
            let _ = measurements.iter().all(Measurement::is_sound);
        }
    }
}

fn broken(measured: Measured) -> Measured {
    match measured {
        Measured::Rtt(trips) => Measured::Rtt(RoundTrips { lost: trips.sent + 1, ..trips }),
        Measured::Tcp(flow) if flow.bytes % 2 == 0 => Measured::Tcp(TcpFlow { limited_share: 1.1, ..flow }),
        // No sum of several has room for it.
        Measured::Tcp(flow) => Measured::Tcp(TcpFlow { retransmits: i64::MAX, ..flow }),
        Measured::Diagnose(found) => Measured::Diagnose(Diagnosis { failed: Some("x".repeat(TEXT_MOST + 1)), ..found }),
        Measured::Unknown => Measured::Unknown,
    }
}

/// Shares that a reader of fewer digits takes for their neighbours, and one of the least numbers that there are.
#[test]
fn a_share_reads_back_to_its_last_bit() {
    for share in [0.9452706955539223_f64, 0.38120423768821243, 0.9925434121760651, 6.9e-310] {
        let text = format!(
            r#"{{"duration_ns":1,"bytes":2,"goodput_bps":3,"paced_bps":4,"retransmits":0,"retransmitted_bytes":null,"min_rtt_ns":null,
            "congestion_control":"cubic","limited_by":"pacing","limited_share":{share:?}}}"#
        );
        let flow: TcpFlow = serde_json::from_str(&text).unwrap();
        assert_eq!(flow.limited_share.to_bits(), share.to_bits(), "{share}");
        let again: TcpFlow = serde_json::from_str(&serde_json::to_string(&flow).unwrap()).unwrap();
        assert_eq!(again, flow);
    }
}

/// Of an older site, and of a newer one: a delivery without measurements, and one of a kind that nobody knows.
#[test]
fn older_and_newer_ones_are_understood() {
    let older = r#"{"kind":"deliver","results":[]}"#;
    assert_eq!(
        serde_json::from_str::<Message>(older).unwrap(),
        Message::Deliver { results: vec![], measurements: vec![] }
    );
    let newer = format!(
        r#"{{"kind":"deliver","results":[],"more":1,"measurements":[{{"id":"{ID}","test":"t","sender":"a","receiver":"b","at_ns":1,
        "measured":{{"kind":"weather","sun":true}}}}]}}"#
    );
    let Message::Deliver { measurements, .. } = serde_json::from_str(&newer).unwrap() else { panic!("no delivery") };
    assert_eq!(measurements[0].measured, Measured::Unknown);
    assert!(!measurements[0].is_sound());
    assert_eq!(serde_json::from_str::<Message>(r#"{"kind":"sing","song":1}"#).unwrap(), Message::Unknown);
    let release = r#"{"kind":"release","number":7}"#;
    assert_eq!(serde_json::from_str::<Message>(release).unwrap(), Message::Release { number: 7, unused: false });
    // An older coordinator says nothing of files, a newer one may keep more kinds.
    let mesh = |files: &str| {
        let text = format!(r#"{{"kind":"mesh","state":"s","file":null,"members":null,"now_ns":1{files}}}"#);
        let Message::Mesh { files, .. } = serde_json::from_str(&text).unwrap() else { panic!("no mesh") };
        files
    };
    assert_eq!(mesh(""), []);
    assert_eq!(mesh(r#","files":["losses","captures"]"#), [FileKind::Losses, FileKind::Unknown]);
}
