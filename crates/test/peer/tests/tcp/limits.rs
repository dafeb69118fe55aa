//! The result names what limits a flow.

use longhaul_tcp::TcpParameters;

use crate::hosts::{able, run};
use crate::support::{bytes, millis, result, tcp_lab};

/// A round-trip time of 20 ms, and more room than any window here needs.
const PATH: &str = "[[both]]\ndelay = '10ms'\n[[both]]\nrate = '400Mbit'\nqueue = '8MiB'\n";

#[test]
fn a_small_receive_buffer_is_the_receive_window() {
    if !able() {
        return;
    }
    let lab = tcp_lab("window", PATH);
    // 64 KiB each 20 ms are 26 Mb/s of the 400 that the path has. The sender's buffer is as large as it likes.
    crate::support::said(&lab, "server", "sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536'");
    let result = result(&run(&lab, millis(2_000)), false);
    assert!(result.limited_by.receive_window > 0.8, "{:?}", result.limited_by);
    assert!(result.goodput_bps < 40_000_000, "{}", result.goodput_bps);
    // The receiver sees that it is not its reader.
    let stream = &result.streams[0];
    let seen = stream.receiver_limited_by.unwrap();
    assert!(seen.receive_window > 0.6 && seen.application < 0.1, "{seen:?}");
}

#[test]
fn a_small_send_buffer_is_the_send_buffer() {
    if !able() {
        return;
    }
    let lab = tcp_lab("sndbuf", PATH);
    crate::support::said(&lab, "client", "sysctl -qw net.ipv4.tcp_wmem='4096 65536 65536'");
    let result = result(&run(&lab, millis(2_000)), false);
    let limited_by = result.limited_by;
    let others = [limited_by.congestion_window, limited_by.receive_window, limited_by.application];
    // The application's is the time in which the writer waits for a CPU, which others may have.
    assert!(limited_by.send_buffer > 0.5 && others.iter().all(|other| *other < 0.3), "{limited_by:?}");
    assert!(result.goodput_bps < 40_000_000, "{}", result.goodput_bps);
}

#[test]
fn a_slow_reader_is_the_receive_window() {
    if !able() {
        return;
    }
    let lab = tcp_lab("reader", PATH);
    let asked = TcpParameters { read_rate_bps: Some(20_000_000), window_bytes: Some(500_000), ..bytes(6_000_000) };
    let result = result(&run(&lab, asked), false);
    assert!(result.limited_by.receive_window > 0.6, "{:?}", result.limited_by);
    assert!((15_000_000..22_000_000).contains(&result.goodput_bps), "{}", result.goodput_bps);
    let stream = &result.streams[0];
    let seen = stream.receiver_limited_by.unwrap();
    assert!(seen.application > 0.6 && seen.receive_window < 0.2, "{seen:?}");
    let (mean, most) = (stream.mean_unread_bytes.unwrap(), stream.max_unread_bytes.unwrap());
    assert!(mean > 100_000 && mean < most && most <= 1_000_000, "{mean} {most}");
}

/// A thread that is held back by its path sleeps most of the time. Both ends tell what their CPUs did.
#[test]
fn each_end_tells_what_its_thread_and_its_cpus_did() {
    if !able() {
        return;
    }
    let lab = tcp_lab("cpu", PATH);
    let result = result(&run(&lab, TcpParameters { write_rate_bps: Some(20_000_000), ..millis(2_000) }), false);
    let stream = &result.streams[0];
    for used in [stream.sender_cpu.unwrap(), stream.receiver_cpu.unwrap()] {
        assert!((1_900_000_000..4_000_000_000).contains(&used.elapsed_ns), "{used:?}");
        assert!((100_000..used.elapsed_ns / 2).contains(&used.cpu_time_ns), "{used:?}");
        assert!(used.run_delay_ns.is_some_and(|ns| ns + used.cpu_time_ns <= used.elapsed_ns), "{used:?}");
    }
    for counters in [&result.counters.sender, &result.counters.receiver] {
        assert!(counters["machine: cpu_watched_ns"] > 1_000_000_000, "{counters:?}");
        for what in ["busy_ns", "softirq_ns", "steal_ns"] {
            assert!(
                counters.keys().any(|name| name.starts_with("machine, CPU ") && name.ends_with(what)),
                "{counters:?}"
            );
        }
    }
}

#[test]
fn a_slow_writer_is_the_application() {
    if !able() {
        return;
    }
    let lab = tcp_lab("writer", PATH);
    let result = result(&run(&lab, TcpParameters { write_rate_bps: Some(20_000_000), ..millis(2_000) }), false);
    assert!(result.limited_by.application > 0.8, "{:?}", result.limited_by);
    assert!((18_000_000..21_000_000).contains(&result.goodput_bps), "{}", result.goodput_bps);
}

#[test]
fn a_full_path_is_the_congestion_window() {
    if !able() {
        return;
    }
    let lab = tcp_lab("path", "[[both]]\ndelay = '5ms'\n[[both]]\nrate = '50Mbit'\nqueue = '200KiB'\n");
    let result = result(&run(&lab, millis(3_000)), false);
    assert!(result.limited_by.congestion_window > 0.8, "{:?}", result.limited_by);
    assert!((40_000_000..50_000_000).contains(&result.goodput_bps), "{}", result.goodput_bps);
    let stream = &result.streams[0];
    assert!(stream.min_rtt_ns.is_some_and(|ns| (10_000_000..13_000_000).contains(&ns)), "{stream:?}");
    // The queue fills: RFC 6349's buffer delay.
    assert!(result.rfc6349.buffer_delay_percentage.unwrap() > 10.0, "{:?}", result.rfc6349);
}

/// This path takes ten seconds for a buffer of 64 MiB: a test that filled it would end that late.
#[test]
fn a_deep_send_buffer_neither_prolongs_a_test_nor_runs_dry() {
    if !able() {
        return;
    }
    let lab = tcp_lab("deep", "[[both]]\ndelay = '10ms'\n[[both]]\nrate = '50Mbit'\nqueue = '250KiB'\n");
    let result = result(&run(&lab, TcpParameters { window_bytes: Some(64 << 20), ..millis(2_000) }), false);
    // What is on its way and in the queue takes 60 ms, what may lie unsent 100 ms.
    assert!(result.duration_ns < 3_000_000_000, "{}", result.duration_ns);
    assert!((40_000_000..50_000_000).contains(&result.goodput_bps), "{}", result.goodput_bps);
    let limited_by = result.limited_by;
    assert!(limited_by.application + limited_by.send_buffer < 0.1, "{limited_by:?}");
}
