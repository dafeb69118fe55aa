//! Options of a test take effect.

use longhaul_tcp::{CongestionStep, Series, TcpParameters, WindowAuto};
use longhaul_terms::Affinity;

use crate::hosts::{able, run, serve, serving_process, test, testing_process_of, until};
use crate::support::{assemble, bytes, millis, result, tcp_lab};

const PATH: &str = "[[both]]\ndelay = '5ms'\n[[both]]\nrate = '200Mbit'\nqueue = '2MiB'\n";

fn step(name: &str, ms: Option<u64>) -> CongestionStep {
    CongestionStep { name: name.into(), duration_ns: ms.map(|ms| ms * 1_000_000) }
}

#[test]
fn the_congestion_control_changes_in_mid_flow_and_the_samples_show_it() {
    if !able() {
        return;
    }
    let lab = tcp_lab("switch", PATH);
    let congestion = vec![step("reno", Some(500)), step("cubic", Some(500)), step("reno", None)];
    let end = run(&lab, TcpParameters { congestion, keep_samples: true, ..millis(1_500) });
    let result = result(&end, false);
    let stream = &result.streams[0];
    assert_eq!(stream.congestion_control, "reno,cubic,reno");
    let starts = &stream.congestion_starts_ns;
    assert!((starts[0], (480_000_000..620_000_000).contains(&starts[1])) == (0, true), "{starts:?}");
    let report = &end.local.tcp.as_ref().unwrap().streams[0];
    let series = Series::from_text(report.samples.as_deref().unwrap(), 10_000).unwrap();
    for number in 0..3 {
        let samples = series.samples().iter().filter(|sample| sample.congestion == number).count();
        assert!(samples > 20, "{number}: {samples}");
    }
}

#[test]
fn a_congestion_control_that_is_not_there_is_said_in_a_line() {
    if !able() {
        return;
    }
    let lab = tcp_lab("no-cc", PATH);
    for direction in [longhaul_terms::TestDirection::Forward, longhaul_terms::TestDirection::Reverse] {
        let (address, _server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
        let asked = TcpParameters { congestion: vec![step("nosuch", None)], direction, ..millis(500) };
        let error = test(&lab, address, asked, |_| {}).unwrap_err();
        assert_eq!(error.code, "no_such_congestion_control");
        assert!(
            error.message.starts_with("congestion control nosuch: the sender's kernel has")
                && error.message.contains("reno")
        );
        assert!(error.remedy.contains("longhaul cc list"), "{}", error.remedy);
    }
}

#[test]
fn the_window_follows_the_path_and_pacing_is_kept() {
    if !able() {
        return;
    }
    let lab = tcp_lab("auto", PATH);
    let auto = WindowAuto { rtt_ns: 0, rate_goal_bps: 200_000_000 };
    let end = run(&lab, TcpParameters { window_auto: Some(auto), rate_goal_bps: Some(200_000_000), ..millis(1_500) });
    let granted = end.parameters.tcp().unwrap();
    let window = granted.window_bytes.unwrap();
    // 10 ms at 200 Mb/s, the round trip as the handshake saw it.
    assert!((250_000..500_000).contains(&window), "{window}");
    let result = result(&end, false);
    let buffers = result.streams[0].socket_buffers;
    assert_eq!(buffers.sender.unwrap().asked_bytes, Some(window));
    assert_eq!(buffers.receiver.unwrap().given_bytes, 2 * window);
    assert!(result.goodput_bps > 120_000_000, "{}", result.goodput_bps);
    assert!(result.rfc6349.transfer_time_ratio.unwrap() > 1.0);

    let paced =
        crate::support::result(&run(&lab, TcpParameters { pace_bps: Some(40_000_000), ..millis(2_000) }), false);
    assert!((30_000_000..41_000_000).contains(&paced.goodput_bps), "{}", paced.goodput_bps);
}

#[test]
fn segments_options_and_sending_without_a_copy() {
    if !able() {
        return;
    }
    let lab = tcp_lab("opts", PATH);
    let asked = TcpParameters {
        mss_bytes: Some(1_000),
        no_sack: true,
        no_timestamps: true,
        zerocopy: true,
        ..bytes(5_000_000)
    };
    let end = run(&lab, asked);
    let (result, caveats) = assemble(&end, false);
    assert_eq!(result.bytes, 5_000_000, "{caveats:?}");
    assert_eq!(result.streams[0].mss_bytes, 1_000);
    // Neither time stamps (1) nor SACK (2).
    assert_eq!(end.local.tcp.as_ref().unwrap().streams[0].summary.options & 3, 0);
    // Afterwards others have them.
    assert_eq!(crate::support::said(&lab, "client", "sysctl -n net.ipv4.tcp_sack net.ipv4.tcp_timestamps"), "1\n1\n");
    let plain = run(&lab, bytes(1_000_000));
    assert_eq!(plain.local.tcp.as_ref().unwrap().streams[0].summary.options & 3, 3);
}

#[test]
fn killed_while_it_connects_it_leaves_sack_as_it_was() {
    if !able() {
        return;
    }
    // It connects for 600 ms.
    let lab = tcp_lab("opts-killed", "[[both]]\nrate = '1Gbit'\ndelay = '300ms'\n");
    let (_server, address) = serving_process(&lab, &[]);
    let now = || crate::support::said(&lab, "client", "sysctl -n net.ipv4.tcp_sack net.ipv4.tcp_timestamps");
    let asked = TcpParameters { no_sack: true, no_timestamps: true, ..bytes(1_000) };
    let mut client = testing_process_of(&lab, address, &asked.into());
    until("SACK to be off", || now() == "0\n0\n");
    client.child.kill();
    until("SACK to be on again", || now() == "1\n1\n");
}

#[test]
fn multipath_carries_all_bytes_or_is_said_to_be_missing() {
    if !able() {
        return;
    }
    let lab = tcp_lab("mptcp", PATH);
    let (address, server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
    match test(&lab, address, TcpParameters { mptcp: true, ..bytes(3_000_000) }, |_| {}) {
        Ok(end) => {
            server.join().unwrap();
            assert_eq!(result(&end, false).bytes, 3_000_000);
        }
        Err(error) => {
            longhaul_testing::skipped!("no traffic over MPTCP: {}", error.message);
            assert!(error.message.contains("CONFIG_MPTCP") && error.remedy.contains("--mptcp"), "{error:?}");
        }
    }
}

/// On which CPUs the thread of this process called `name` may run.
fn cpus_of(name: &str) -> Option<String> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path());
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let task = tasks.into_iter().find(|task| read(task.join("comm")).trim() == name)?;
    let status = read(task.join("status"));
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
}

#[test]
fn threads_of_either_end_run_where_they_are_told() {
    if !able() {
        return;
    }
    let cpus = longhaul_kernel::schedule::allowed_cpus().unwrap();
    let (first, last) = (cpus[0] as u16, cpus[cpus.len() - 1] as u16);
    let lab = tcp_lab("affinity", PATH);
    let affinity = Affinity { sender_cpus: vec![last], receiver_cpus: vec![first], ..Affinity::default() };
    // No other test of this process has a seventh flow, whose threads have that number in their names.
    let asked = TcpParameters { streams: 7, affinity, interval_ns: Some(100_000_000), ..millis(2_000) };
    let (address, server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
    let mut seen = Vec::new();
    test(&lab, address, asked, |_| seen.push((cpus_of("send 6"), cpus_of("receive 6")))).unwrap();
    server.join().unwrap();
    let wanted = (Some(last.to_string()), Some(first.to_string()));
    assert!(seen.contains(&wanted), "{seen:?}, {wanted:?} wanted");
}
