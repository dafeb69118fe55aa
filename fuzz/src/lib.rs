//! What is tried with arbitrary bytes: each parser of longhaul that reads what others wrote.
//!
//! A target must not panic, loop or take memory without bound, and what a parser accepts must keep the promises written
//! here. The files in `fuzz_targets/` hand these to libFuzzer; `crates/longhaul/tests/pure/fuzz_corpus.rs` runs them on stable.

#![allow(unreachable_pub, reason = "a crate of its own here, a module there")]

pub mod commands;
pub mod pages;

use std::path::Path;
use std::sync::LazyLock;

use longhaul_captures::header_log::HeaderLogReader;
use longhaul_captures::ledger::Ledger;
use longhaul_captures::log_link::{Arrival, INTERFACES_MOST, LinkMessage, LinkReceiver};
use longhaul_captures::packet::within_times;
use longhaul_captures::spool::{BlockReader, HEADER_BYTES, Kind, MAGIC, Packets};
use longhaul_captures::{CaptureReader, LinkType, Record, dissect};
use longhaul_channel::{Deframer, Key, to_frame};
use longhaul_experiment::Experiment;
use longhaul_experiment::faults::spec::Fault;
use longhaul_flows::{FlowOptions, Flows};
use longhaul_lab::control::Request;
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::message as mesh;
use longhaul_mesh_model::schedule::Schedule;
use longhaul_mix::{MOST_TEMPLATES, MixSpec, Plan, Target};
use longhaul_path::law::{DIST_SCALE, Table};
use longhaul_path::spec::{Change, PathSpec, no_files};
use longhaul_report::parquet::{self, ReadSamples, read_delays, read_losses, read_series, rewrite};
use longhaul_report::saved::{Saved, on_one_line};
use longhaul_rtt::probe_log;
use longhaul_session::{
    Caps, ClientConfig, ClientSession, EndReport, Message, Output, Randomness, ServerConfig, ServerSession,
    TestParameters, Verdict,
};
use longhaul_tcp::proof::TCP_HELLO_BYTES;
use longhaul_tcp::{Series, TcpParameters, TcpResult};
use longhaul_udp::{UdpParameters, UdpResult};
use longhaul_units::{Nanos, is_obeyed};
use longhaul_wire::checksum::{crc32c, crc32c_append};
use longhaul_wire::probe::Cookie;
use longhaul_wire::{PieceHeader, Segmenter, VnetHeader, vnet};

/// A path file. One that is accepted reads back from what [`PathSpec::to_toml`] writes of it.
pub fn path_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(spec) = PathSpec::parse(text, &no_files) else { return };
    let written = spec.to_toml();
    match PathSpec::parse(&written, &no_files) {
        Ok(read) => assert_eq!(read, spec, "{written}"),
        Err(error) => panic!("{error}\n{written}"),
    }
}

/// Changes of a running path, one a line. A refused one leaves the path as it was, any other leaves it valid.
pub fn change(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut spec = RUNNING.clone();
    for line in text.lines().take(64) {
        let Ok(change) = Change::parse(line) else { continue };
        let before = spec.clone();
        match Change::apply(&[change], &mut spec) {
            Ok(changed) => {
                assert!(!changed.is_empty(), "{line}");
                if let Err(error) = spec.validate() {
                    panic!("{line}: {error}");
                }
            }
            Err(_) => assert_eq!(spec, before, "{line}"),
        }
    }
}

/// A path with hops of both kinds of name and several hosts.
static RUNNING: LazyLock<PathSpec> = LazyLock::new(|| {
    let text = r#"
[[client]]
[[client]]
name = "far"
delay = "5ms"
[[server]]
[[forward]]
name = "wan"
rate = "10Gbit"
queue = "64MiB"
delay = "37.3ms"
[[forward]]
delay = "1ms"
jitter = { law = "normal", stddev = "8us" }
[[backward]]
delay = "37.3ms"
"#;
    PathSpec::parse(text, &no_files).expect("a valid path")
});

/// A `.dist` file. One that is accepted has finite quantiles that do not fall, and reads back with as many values.
pub fn dist_table(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(table) = Table::parse(text) else { return };
    let quantiles = table.quantiles();
    assert!(quantiles.iter().all(|quantile| quantile.is_finite()));
    assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1]));
    for u in [0.0, f64::MIN_POSITIVE, 0.25, 0.5, 1.0 - f64::EPSILON, 1.0] {
        assert!(table.quantile(u).is_finite());
    }
    let written: String = quantiles.iter().map(|value| format!(" {}", (value * DIST_SCALE).round() as i16)).collect();
    match Table::parse(&written) {
        Ok(read) => assert_eq!(read.quantiles().len(), quantiles.len()),
        Err(error) => panic!("{error}\n{written}"),
    }
}

/// A `virtio_net_hdr`, two bytes that pick a run of wire packets, and a frame. The pieces that it is cut into have the
/// lengths that its shape says.
pub fn frame(input: &[u8]) {
    let Some((header, rest)) = input.split_at_checked(vnet::LEN) else { return };
    let (&[first, count, ref frame @ ..], Ok(header)) = (rest, header.try_into()) else { return };
    let Ok(segmenter) = Segmenter::new(frame, frame.len(), VnetHeader::parse(header)) else { return };
    let shape = segmenter.shape();
    let first = u32::from(first) % shape.segments;
    let count = u32::from(count) % (shape.segments - first) + 1;
    let mut piece = PieceHeader::new();
    if segmenter.run(frame, first, count, &mut piece).is_ok() {
        assert!(piece.payload.end <= frame.len(), "{shape:?} {piece:?}");
        if count == 1 && !piece.header().is_empty() {
            assert_eq!(piece.frame_len(), shape.wire_len(first) as usize, "{shape:?} {piece:?}");
        }
    }
    let mut out = Vec::new();
    if segmenter.segment_whole(frame, first, &mut out).is_ok() {
        assert_eq!(out.len(), shape.wire_len(first) as usize, "{shape:?}");
    }
}

/// A line to the process that holds a lab. A request that is accepted reads back from what is written of it.
pub fn control_line(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(request) = serde_json::from_str::<Request>(text) else { return };
    let write = |request: &Request| serde_json::to_string(request).expect("requests can be written");
    let written = write(&request);
    match serde_json::from_str::<Request>(&written) {
        Ok(read) => assert_eq!(write(&read), written),
        Err(error) => panic!("{error}\n{written}"),
    }
    if let Request::Set(changes) = request {
        changes.iter().for_each(|text| drop(Change::parse(text)));
    }
}

/// A fault of the catalogue. One that is accepted has its commands and paths within bounds.
pub fn fault(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Fault::parse("fuzz", text, &|_| Some("title = \"another\"")) {
        Ok(fault) => assert!((1..=16).contains(&fault.round_trips.len())),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}

/// An experiment. The tests of one that is accepted can be asked for.
pub fn experiment(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // There are no path files to name.
    match Experiment::parse(text, Path::new("/nonexistent")) {
        Ok(experiment) => {
            for series in &experiment.udp {
                assert!(series.path.validate().is_ok(), "{}", series.name);
                for test in &series.tests {
                    assert!(test.parameters.validate().is_ok(), "{}, {}", series.name, test.label);
                }
            }
            for series in &experiment.tcp {
                for test in &series.tests {
                    assert!(test.flows.parameters.validate().is_ok(), "{}, {}", series.name, test.label);
                }
            }
            for series in &experiment.mix {
                assert!(series.repeats.quick.iter().all(|point| *point < series.labels().len()), "{}", series.name);
            }
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
}
/// What came over the control channel: messages with their lengths. One that is accepted reads back from what is written of it;
/// none of them has either end of a test send in bulk, as nothing was proven.
pub fn control_messages(input: &[u8]) {
    let mut messages: Vec<Message> = Vec::new();
    let _ = Deframer::default().push(input, &mut messages);
    let mut now = Nanos::from_secs(1);
    let config = ServerConfig { peer: [192, 0, 2, 1].into(), caps: Caps::default() };
    let mut server = ServerSession::new(now, config, Randomness([7; Randomness::BYTES]));
    // A client that wants the kind of test that the messages speak of, if any.
    let tcp = messages.iter().any(|message| match message {
        Message::Propose { parameters } => parameters.tcp().is_some(),
        Message::Accept(accept) => accept.parameters.tcp().is_some(),
        _ => false,
    });
    let parameters: TestParameters =
        if tcp { TcpParameters::default().into() } else { UdpParameters::default().into() };
    let mut client =
        ClientSession::new(now, ClientConfig { parameters, nonce: 1, measurement: None, report_bytes: 1 << 16 });
    for message in messages {
        let Ok(frame) = to_frame(&message) else { continue };
        let mut again: Vec<Message> = Vec::new();
        Deframer::default().push(&frame, &mut again).expect("what was written reads back");
        assert_eq!(again, std::slice::from_ref(&message));
        now += Nanos::from_millis(100);
        server.handle_message(now, message.clone());
        let from = ([192, 0, 2, 1], 1).into();
        assert_eq!(server.handle_data_hello(now, from, &input[..input.len().min(TCP_HELLO_BYTES)]), None);
        client.handle_message(now, message);
        while let Some(output) = server.poll_output(now) {
            match output {
                Output::RequestAdmission { .. } => server.handle_admission(now, Verdict::Run),
                Output::OpenData(plan) => {
                    server.handle_data_opened(now, vec![5210; plan.parameters.kind().streams().into()], Vec::new());
                }
                Output::StartSending { .. } => panic!("the server sends and nothing was proven"),
                _ => {}
            }
        }
        while let Some(output) = client.poll_output() {
            if let Output::OpenData(_) = output {
                client.handle_data_opened(now);
            }
        }
    }
}

/// The other end's report, out of which a result is made.
pub fn end_report(input: &[u8]) {
    let Ok(report) = serde_json::from_slice::<EndReport>(input) else { return };
    let udp = report.udp.unwrap_or_default();
    let (sender, receiver) = (udp.sender.unwrap_or_default(), udp.receiver.unwrap_or_default());
    let result = UdpResult::assemble(&UdpParameters::default(), &sender, &receiver).result;
    let placed: u64 = result.loss_by_location.values().sum();
    assert_eq!((placed, result.sent_packets), (result.lost_packets, result.received_packets + result.lost_packets));
    let Some(tcp) = report.tcp else { return };
    for backward in [false, true] {
        let Some(assembled) = TcpResult::assemble(&TcpParameters::default(), false, backward, &tcp, &tcp) else {
            continue;
        };
        let shares = assembled.result.limited_by;
        let sum = shares.congestion_window + shares.receive_window + shares.send_buffer + shares.application;
        assert!(sum == 0.0 || (sum - 1.0).abs() < 1e-6, "{shares:?}");
    }
    for samples in tcp.streams.iter().filter_map(|stream| stream.samples.as_deref()) {
        if let Ok(series) = Series::from_text(samples, 10_000) {
            assert!(series.samples().len() <= samples.len().min(10_000));
        }
    }
}

/// A file of a spool, its checksums made good, up to the first block that is not whole: behind a wrong one nothing is read, and mutations seldom
/// have a right one. What is no spool stays as it is.
pub fn sealed(input: &[u8]) -> Vec<u8> {
    let mut sealed = input.to_vec();
    let mut at = 0;
    while let Some((header, body)) = sealed[at..].split_at_mut_checked(HEADER_BYTES) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some(body) = body.get(..length).filter(|_| header.starts_with(&MAGIC)) else { break };
        let (summed, crc) = header.split_at_mut(HEADER_BYTES - 4);
        crc.copy_from_slice(&crc32c_append(crc32c(body), summed).to_le_bytes());
        at += HEADER_BYTES + length;
    }
    sealed
}

/// A file of a spool. Every packet of a whole block can be looked into.
pub fn spool(input: &[u8]) {
    let sealed = sealed(input);
    let mut reader = BlockReader::new(&sealed[..]);
    while let Ok(Some(block)) = reader.next_block() {
        if block.kind == Kind::Ledger
            && let Ok(part) = block.json::<Ledger>()
        {
            let mut whole = part.clone();
            whole.add(&part);
            let _ = whole.unaccounted_packets();
        }
        let mut packets = block.packets(LinkType::Ethernet);
        while let Ok(Some(record)) = packets.next() {
            assert_eq!(dissect(&record).at_ns, within_times(record.at_ns));
        }
    }
    // The packets of a body that has no block around it.
    let mut packets = Packets::of_body(input, 1000, 0, 0, LinkType::Ethernet);
    while let Ok(Some(record)) = packets.next() {
        assert!(record.snippet.len() <= input.len());
    }
}

/// What comes over a log link: a message, or datagrams' payloads, each after its number (one byte) and its length (two, LE). Whatever they
/// say, each snippet that came is seen once, and each that is missing is in a gap.
pub fn log_link(input: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<LinkMessage>(input) {
        let written = serde_json::to_string(&message).expect("messages can be written");
        assert_eq!(serde_json::from_str::<LinkMessage>(&written).ok(), Some(message.clone()), "{written}");
        if let LinkMessage::Open(open) = message
            && let Ok(meta) = open.checked_meta()
        {
            assert!(!meta.host.contains(is_obeyed) && meta.interfaces.len() <= INTERFACES_MOST);
        }
    }
    let mut receiver = LinkReceiver::new(2, 0);
    let (mut ledger, mut snippets, mut now) = (Ledger::default(), 0, Nanos::ZERO);
    let mut rest = input;
    while let Some((&[sequence, low, high], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        rest = behind;
        now += Nanos::from_millis(100);
        receiver.handle_timeout(now);
        if let Arrival::Snippets(payload) = receiver.handle(now, sequence.into(), payload) {
            let mut packets = payload.packets();
            while packets.next_raw().expect("it was looked over").is_some() {
                snippets += 1;
            }
        }
        ledger.add(&receiver.take_part());
    }
    receiver.finish(Some((u8::MAX.into(), u64::MAX / 2, i64::MAX)));
    ledger.add(&receiver.take_part());
    let counts = receiver.counts();
    assert_eq!((counts.snippets, counts.lost_snippets), (snippets, ledger.dropped()));
    assert_eq!(ledger.seen_packets, counts.snippets + counts.lost_snippets);
    assert_eq!(ledger.gaps.iter().map(|gap| gap.packets).sum::<u64>(), counts.lost_snippets);
}

/// A header log.
pub fn header_log(input: &[u8]) {
    let Ok(mut reader) = HeaderLogReader::new(bytes::Bytes::copy_from_slice(input)) else { return };
    let _ = reader.about();
    let mut packets = Vec::new();
    // A few bytes may claim any number of equal rows.
    for _ in 0..64 {
        if reader.next_batch(&mut packets).is_err() || packets.is_empty() {
            return;
        }
    }
}

/// A segment of a log of probes.
pub fn probe_log(input: &[u8]) {
    // A few bytes may claim any number of equal rows.
    let _ = probe_log::rows_of(bytes::Bytes::copy_from_slice(input), 1 << 18);
}

/// A key file. One that is accepted reads back from what is written of it.
pub fn key_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(key) = text.parse::<Key>() else { return };
    let written = key.to_text();
    assert_eq!(written.parse::<Key>().map(|key| key.to_text()), Ok(written));
}

/// A file for `longhaul show`. What is shown of one that is accepted cannot disturb a terminal, and it reads back from one line.
pub fn saved_result(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(saved) = Saved::parse(text) else { return };
    let shown = saved.text();
    assert!(!shown.contains(|c: char| is_obeyed(c) && c != '\n'), "{shown:?}");
    // A few lines, whatever the result says; the longest part of them is the name of a file in it.
    assert!(shown.len() <= 64 * 1024 + 2 * text.len(), "{} bytes of {}", shown.len(), text.len());
    let line = on_one_line(text);
    assert!(!line.contains(['\n', '\r']), "{line}");
    match Saved::parse(&line) {
        Ok(read) => assert_eq!((read.text(), read.caveats), (shown, saved.caveats)),
        Err(error) => panic!("{error}\n{line}"),
    }
}

/// A mesh. One that is accepted has a schedule in which no site is twice in a slot, or is refused in one line.
pub fn mesh_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mesh = match Mesh::parse(text) {
        Ok(mesh) => mesh,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    };
    let schedule = match Schedule::make(&mesh) {
        Ok(schedule) => schedule,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    };
    for round in &schedule.rounds {
        for slot in round.slots_of(&mesh, 0) {
            let mut busy: Vec<_> = slot.pairs.iter().flat_map(|(from, to)| [from, to]).collect();
            busy.sort_unstable();
            busy.dedup();
            assert_eq!(busy.len(), slot.pairs.len() * 2, "{text}");
        }
    }
}

/// A message of a mesh, and what it brings. One that is accepted reads back from what is written of it; results that make sense are printable.
pub fn mesh_message(input: &[u8]) {
    let Ok(message) = serde_json::from_slice::<mesh::Message>(input) else { return };
    let text = serde_json::to_string(&message).expect("a message is JSON");
    match serde_json::from_str::<mesh::Message>(&text) {
        Ok(read) => assert_eq!(read, message, "{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
    if let mesh::Message::Deliver { results, measurements } = message {
        for result in results.iter().filter(|result| result.is_sound()) {
            assert!(result.lost <= result.sent && !result.sender.contains(char::is_control), "{result:?}");
        }
        for one in measurements.iter().filter(|one| one.is_sound()) {
            let text = serde_json::to_value(one).expect("a measurement is JSON").to_string();
            // JSON writes control characters as escapes.
            assert!(!text.contains("\\u00") && !text.contains("\\n"), "{text}");
        }
    }
}

/// The Parquet file of a test that a site delivers, or that lies beside a saved result. What is written of one that is accepted is accepted, too, and
/// stays as it is.
pub fn mesh_test_file(input: &[u8]) {
    let bytes = || bytes::Bytes::copy_from_slice(input);
    let _ = read_losses(bytes(), |loss| assert_eq!(loss.reason, ""));
    let _ = read_delays(bytes(), |_, _, delay_ns| assert!(delay_ns.is_finite()));
    let _ = read_series(bytes(), |_, _, _, _| {});
    let _ = ReadSamples::read(bytes()).map(|mut read| read.take().len());
    for table in [parquet::Table::Losses, parquet::Table::Samples] {
        let Ok(written) = rewrite(table, bytes()) else { continue };
        match rewrite(table, written.clone().into()) {
            Ok(again) => assert!(again == written, "{table:?}: it is written in two ways"),
            Err(error) => panic!("{table:?}: {error}"),
        }
    }
}

/// A mix. One that is accepted can be sent: its frames are of Ethernet's sizes.
pub fn mix_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let spec = match MixSpec::parse(text) {
        Ok(spec) => spec,
        Err(error) => return assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    };
    let target = |address: &str, source: &str| Target {
        mac: [2, 0, 0, 0, 0, 2],
        address: address.parse().expect("an address"),
        port: 5210,
        source: source.parse().expect("an address"),
        source_port: 5210,
        cookie: Cookie(0),
    };
    // A mix may be for a target of IPv4, of IPv6 or of either; one for both has nobody to go to.
    let mut targets = [target("192.0.2.2", "192.0.2.1"), target("2001:db8::2", "2001:db8::1")].into_iter();
    let Some(plan) = targets.find_map(|target| Plan::new(spec.clone(), 1, Some(target)).ok()) else { return };
    assert!((1..=MOST_TEMPLATES).contains(&plan.templates.len()));
    assert!(plan.templates.iter().all(|template| (60..=1514).contains(&template.bytes.len())));
    assert!((0..1000).all(|number| plan.choice(number) < plan.templates.len()));
}

/// A capture, pcap or pcapng. Snippets are no longer than their frames, and what is written of them as pcapng reads back.
pub fn capture(input: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(input) else { return };
    let mut flows = Flows::new(FlowOptions::for_bytes(input.len() as u64), Vec::new());
    let mut packets = 0;
    while let Ok(Some(record)) = reader.next() {
        assert!(record.snippet.len() <= record.frame_len as usize, "{record:?}");
        flows.packet(&dissect(&record));
        packets += 1;
        let mut described = longhaul_captures::pcapng::Interface::default();
        described.link = record.link;
        let record = Record { interface: 0, at_ns: record.at_ns.max(0), ..record };
        let mut writer = longhaul_captures::pcapng::Writer::new(Vec::new(), "", &[described]).expect("memory");
        writer.write(&record, "").expect("memory");
        let written = writer.into_inner();
        let mut again = CaptureReader::new(&written[..]).expect("a capture was written");
        assert_eq!(again.next().expect("a whole one"), Some(record));
    }
    let (_, totals) = flows.finish();
    assert_eq!(totals.packets, packets);
}

/// A byte that picks the link type, and a snippet. Clipped anywhere it has no other addresses and ports than whole.
pub fn dissected(input: &[u8]) {
    let Some((kind, snippet)) = input.split_first() else { return };
    let link = [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2];
    let link = link[usize::from(*kind) % link.len()];
    let at = |snippet| {
        let frame_len = input.len() as u32;
        let direction = longhaul_captures::InterfaceDirection::Unknown;
        dissect(&Record { at_ns: 0, interface: 0, direction, link, frame_len, gso_segs: 0, gso_size: 0, snippet })
    };
    let whole = at(snippet);
    for clip in 0..snippet.len().min(128) {
        let clipped = at(&snippet[..clip]);
        if let (Some(some), Some(all)) = (clipped.ip, whole.ip) {
            assert_eq!((some.src, some.dst), (all.src, all.dst));
        }
    }
}
