//! The result agrees with what others report: ss, nstat, the peer.

use std::sync::mpsc::channel;

use longhaul_tcp::{Series, TcpParameters, fields};
use longhaul_terms::TestDirection;

use crate::hosts::{able, run, run_to, serve, test};
use crate::support::{assemble, bytes, millis, result, said, tcp_lab};

const PATH: &str = "[[both]]\ndelay = '5ms'\n[[both]]\nrate = '200Mbit'\nqueue = '1MiB'\n";

#[test]
fn every_byte_arrives_in_each_direction_over_both_protocols() {
    if !able() {
        return;
    }
    let lab = tcp_lab("bytes", PATH);
    let server = lab.host("server").unwrap();
    for (address, streams, direction) in [
        (server.plan.ipv4.into(), 1, TestDirection::Forward),
        (server.plan.ipv4.into(), 4, TestDirection::Reverse),
        (server.plan.ipv6.into(), 4, TestDirection::Bidirectional),
        (server.plan.ipv6.into(), 1, TestDirection::Reverse),
    ] {
        let asked = TcpParameters { streams, direction, ..bytes(8_000_001) };
        let end = run_to(&lab, address, asked);
        for backward in [false, true] {
            let tested = if backward { direction.server_sends() } else { direction.client_sends() };
            if !tested {
                continue;
            }
            let (result, caveats) = assemble(&end, backward);
            assert_eq!((result.bytes, result.streams.len()), (8_000_001, streams.into()), "{direction:?}");
            assert!(!caveats.iter().any(|w| w.code == "not_drained" || w.code == "flow_failed"), "{caveats:?}");
            let sent: u64 = end
                .local
                .tcp
                .iter()
                .chain(end.remote.iter().filter_map(|remote| remote.tcp.as_ref()))
                .flat_map(|tcp| tcp.of(backward, true))
                .map(|stream| stream.bytes)
                .sum();
            assert_eq!(sent, result.bytes);
            assert!(result.goodput_bps > 20_000_000, "{}", result.goodput_bps);
        }
    }
}

#[test]
fn retransmissions_agree_with_nstat_and_samples_with_ss() {
    if !able() {
        return;
    }
    let lab = tcp_lab(
        "ss",
        "[[both]]\ndelay = '5ms'\n[[forward]]\nloss = { every = 300 }\n[[both]]\nrate = '200Mbit'\nqueue = '4MiB'\n",
    );
    let counter = || -> u64 {
        let text = said(&lab, "client", "nstat -asz TcpRetransSegs");
        text.lines()
            .find_map(|line| line.strip_prefix("TcpRetransSegs"))
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let before = counter();
    let server = lab.host("server").unwrap();
    let (address, thread) = serve(&lab, server.plan.ipv4.into(), None);
    // While the flow runs, ss looks at the same socket.
    let (looked, looks) = channel();
    let asked = TcpParameters { interval_ns: Some(500_000_000), keep_samples: true, ..millis(2_500) };
    let end = test(&lab, address, asked, |_| {
        let _ = looked.send(said(&lab, "client", "ss -tinH state established"));
    })
    .unwrap();
    thread.join().unwrap();
    let result = result(&end, false);
    assert!(result.retransmits > 5, "{}", result.retransmits);
    assert_eq!(counter() - before, result.retransmits, "nstat's TcpRetransSegs");

    let report = &end.local.tcp.as_ref().unwrap().streams[0];
    let series = Series::from_text(report.samples.as_deref().unwrap(), 100_000).unwrap();
    assert!(series.samples().len() > 200, "{}", series.samples().len());
    let last = series.samples().last().unwrap().info;
    assert_eq!(
        last.get(fields::BYTES_ACKED).map(|acked| acked.saturating_sub(26)),
        Some(report.bytes),
        "SYN, FIN, hello"
    );
    let lines: Vec<String> = looks.try_iter().collect();
    let mut compared = 0;
    for text in &lines {
        // The line with the bulk is the one that sent most.
        let value = |name: &str| -> Option<u64> {
            text.split_whitespace().filter_map(|word| word.strip_prefix(name)?.parse().ok()).max()
        };
        // The control connection never gets so far.
        let (Some(sent), Some(acked @ 1_000_000..)) = (value("bytes_sent:"), value("bytes_acked:")) else { continue };
        let samples = series.samples();
        // Samples that saw just as much acknowledged may be from before or after.
        let acked_below = samples.partition_point(|sample| sample.info.value(fields::BYTES_ACKED) < acked);
        let acked_above = samples.partition_point(|sample| sample.info.value(fields::BYTES_ACKED) <= acked);
        if acked_below == 0 || acked_above == samples.len() {
            continue;
        }
        let (before, after) = (samples[acked_below - 1].info, samples[acked_above].info);
        assert!(
            (before.value(fields::BYTES_SENT)..=after.value(fields::BYTES_SENT)).contains(&sent),
            "ss saw {sent} sent at {acked} acknowledged"
        );
        compared += 1;
    }
    assert!(compared > 0, "{lines:?}");
}

#[test]
fn what_is_omitted_does_not_count() {
    if !able() {
        return;
    }
    let lab = tcp_lab("omit", PATH);
    let end = run(&lab, TcpParameters { omit_ns: 1_000_000_000, ..millis(2_000) });
    let result = result(&end, false);
    let whole = end.local.tcp.as_ref().unwrap().streams[0].bytes;
    assert!(result.bytes < whole * 7 / 10 && result.bytes > whole / 4, "{} of {whole}", result.bytes);
    // What was written by the end still drains; it is counted with its time.
    assert!((900_000_000..1_900_000_000).contains(&result.duration_ns), "{}", result.duration_ns);
}

#[test]
fn sampling_says_what_it_took() {
    if !able() {
        return;
    }
    let lab = tcp_lab("cost", PATH);
    let asked = TcpParameters { streams: 8, sample_ns: 1_000_000, keep_samples: true, ..millis(1_000) };
    let end = run(&lab, asked);
    let result = result(&end, false);
    let cost = result.sampling_sender;
    // 8,000 and what the end takes, fewer where the machine lets the thread wait; the default interval would make 1,000.
    assert!((1_500..20_000).contains(&cost.samples), "{cost:?}");
    assert!(cost.cpu_time_ns > 0 && cost.cpu_time_ns < cost.elapsed_ns, "{cost:?}");
}
