//! A coordinator with a store that the test has filled.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_mesh::store::{
    Archive, Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, TestResult,
};
use longhaul_testing::program::Program;
use longhaul_units::utc;
use serde_json::Value;

pub(crate) const MESH: &str = env!("CARGO_BIN_EXE_longhaul-mesh");
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;
/// A busy machine needs some of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("longhaul-mesh-page-{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A mesh file with these sites and one test an hour between all.
pub(crate) fn mesh_file(sites: &[String]) -> String {
    let site = |(number, name): (usize, &String)| {
        format!("[[site]]\nname = '{name}'\naddress = '192.0.2.{}'\nrate = '10Gbit'\n", number + 1)
    };
    let sites: String = sites.iter().enumerate().map(site).collect();
    format!(
        "name = 'research'\n{sites}[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '1h'\ntime = '5s'\nrate = '1M'\nlength = 1000\n"
    )
}

/// Results of all pairs for some hours up to now, a test an hour. `lost` says how many of 10,000 packets a pair lost: sender, receiver, hours ago.
pub(crate) fn results(sites: &[String], hours: i64, lost: impl Fn(usize, usize, i64) -> i64) -> Vec<TestResult> {
    let mut results = Vec::new();
    let begin = now_ns() / HOUR_NS * HOUR_NS;
    for ago in (1..=hours).rev() {
        for (from, sender) in sites.iter().enumerate() {
            for (to, receiver) in sites.iter().enumerate().filter(|(to, _)| *to != from) {
                let number = results.len();
                let lost = lost(from, to, ago);
                results.push(TestResult {
                    id: format!("{number:032x}"),
                    test: "probes".into(),
                    sender: sender.clone(),
                    receiver: receiver.clone(),
                    at_ns: begin - ago * HOUR_NS + (from * sites.len() + to) as i64 * 1_000_000_000,
                    sent: 10_000,
                    lost,
                    at_sender: Some(0),
                    at_receiver: Some(lost),
                    received_rate_bps: 1_000_000,
                });
            }
        }
    }
    results
}

/// Round trips of each pair of sites, two an hour, and TCP in both directions, one in two hours, for some hours up to now; a diagnosis of the first
/// pair. `longer` says by what share round trips of a pair are longer: sites, hours ago; with `None` no probe was answered.
pub(crate) fn measurements(
    sites: &[String],
    hours: i64,
    longer: impl Fn(usize, usize, i64) -> Option<f64>,
) -> Vec<Measurement> {
    let mut all = Vec::new();
    let begin = now_ns() / HOUR_NS * HOUR_NS;
    let mut push = |(from, to): (usize, usize), kind: &str, at_ns: i64, measured: Measured| {
        let id = format!("a{:031x}", all.len());
        let (sender, receiver) = (sites[from].clone(), sites[to].clone());
        all.push(Measurement { id, test: kind.to_owned(), sender, receiver, at_ns, measured });
    };
    for ago in (1..=hours).rev() {
        for (from, to) in (0..sites.len()).flat_map(|from| (0..sites.len()).map(move |to| (from, to))) {
            let at_ns = begin - ago * HOUR_NS + (from * sites.len() + to) as i64 * 1_000_000_000;
            if from < to {
                for half in 0..2 {
                    let longer = longer(from, to, ago);
                    let p50 = |longer| {
                        ((((from + to) * 10 + 5) as f64 + half as f64 * 0.01 * (ago % 7) as f64) * 1e6 * longer) as i64
                    };
                    push(
                        (from, to),
                        "delay",
                        at_ns + half * HOUR_NS / 2,
                        Measured::Rtt(round_trips(longer.map(p50), ago)),
                    );
                }
            }
            if from != to && ago % 2 == 0 {
                let goodput_bps =
                    40_000_000 + ((from * 3 + to) as i64 * 100_000 + ago * 1000) - (to == 1) as i64 * 25_000_000;
                push((from, to), "goodput", at_ns, Measured::Tcp(flow(goodput_bps)));
            }
        }
    }
    push((0, 1), "why", begin - HOUR_NS / 2, Measured::Diagnose(diagnosis("1")));
    all
}

fn round_trips(p50_ns: Option<i64>, ago: i64) -> RoundTrips {
    let quantiles = p50_ns.map(|p50_ns| {
        let [min_ns, p90_ns, p99_ns, max_ns] = [0.9, 1.1, 1.25, 2.0].map(|share| (p50_ns as f64 * share) as i64);
        Quantiles { min_ns, p50_ns, p90_ns, p99_ns, max_ns }
    });
    let lost = if p50_ns.is_none() { 600 } else { ago % 3 };
    let outages = i64::from(p50_ns.is_none());
    RoundTrips {
        duration_ns: 60_000_000_000,
        sent: 600,
        lost,
        quantiles,
        outages,
        longest_outage_ns: outages * 60_000_000_000,
        gaps_ns: 0,
    }
}

fn flow(goodput_bps: i64) -> TcpFlow {
    TcpFlow {
        duration_ns: 30_000_000_000,
        bytes: goodput_bps * 30 / 8,
        goodput_bps,
        paced_bps: 46_423_927,
        retransmits: goodput_bps % 7,
        retransmitted_bytes: None,
        min_rtt_ns: Some(5_000_000),
        congestion_control: "cubic".into(),
        limited_by: "congestion_window".into(),
        limited_share: 0.93,
    }
}

/// What was found for an alarm.
pub(crate) fn diagnosis(alarm: &str) -> Diagnosis {
    let cause = |code: &str, place: &str, bound_bps, remedy: &str| Cause {
        code: code.into(),
        place: place.into(),
        bound_bps,
        remedy: remedy.into(),
    };
    let causes = vec![
        cause("loss", "receiver_ring", Some(12_000_000), "Make the receiver's ring longer: ethtool -G eth0 rx 4096"),
        cause("receive_buffer", "receiver", None, "Let net.ipv4.tcp_rmem end at 64 MB"),
    ];
    Diagnosis {
        alarm: alarm.into(),
        target_bps: Some(1_000_000_000),
        goodput_bps: Some(11_500_000),
        causes,
        failed: None,
    }
}

pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes a coordinator's folder with these sites and results.
pub(crate) fn hub(folder: &Folder, sites: &[String], results: &[TestResult]) -> PathBuf {
    let (hub, file) = (folder.file("hub"), folder.file("mesh.toml"));
    fs::write(&file, mesh_file(sites)).unwrap();
    let init = Command::new(MESH).arg("init").arg(&file).arg("--folder").arg(&hub).output().unwrap();
    assert!(init.status.success(), "{init:?}");
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    for part in results.chunks(5000) {
        archive.take(part).unwrap();
    }
    hub
}

/// The same with tests of all kinds and these measurements.
/// Keeps a list of lost packets beside `test`, as a coordinator does. What is in it is no Parquet.
pub(crate) fn keep_losses(hub: &Path, test: &TestResult, content: &str) {
    let day =
        hub.join("losses").join(format!("site={}", test.receiver)).join(format!("day={}", &utc(test.at_ns)[..10]));
    fs::create_dir_all(&day).unwrap();
    fs::write(day.join(format!("{}.parquet", test.id)), content).unwrap();
}

pub(crate) fn hub_of_all_kinds(
    folder: &Folder,
    sites: &[String],
    results: &[TestResult],
    measurements: &[Measurement],
) -> PathBuf {
    let hub = hub(folder, sites, results);
    let file = hub.join("mesh.toml");
    let others = "[[test]]\nname = 'delay'\nkind = 'rtt'\ntime = '60s'\n[[test]]\nname = 'goodput'\nkind = 'tcp'\nevery = '6h'\ntime = '30s'\nshare = '1%'\n\
         [[test]]\nname = 'why'\nkind = 'diagnose'\ntime = '5s'\nshare = '1%'\n";
    fs::write(&file, fs::read_to_string(&file).unwrap() + others).unwrap();
    let mut archive = Archive::open(&hub.join("archive")).unwrap();
    for part in measurements.chunks(5000) {
        archive.take_measurements(part).unwrap();
    }
    hub
}

/// A coordinator that runs, and where its page is.
pub(crate) struct Coordinator {
    program: Program,
    pub(crate) address: String,
    pub(crate) token: String,
    /// What it said until it listened.
    pub(crate) said: String,
}

impl Coordinator {
    pub(crate) fn start(hub: &Path, options: &[&str]) -> Self {
        Self::start_in(hub, options, &[])
    }

    /// With further variables in its environment.
    pub(crate) fn start_in(hub: &Path, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let run = ["run", "--coordinator", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--folder"];
        let mut command = Command::new(MESH);
        command
            .args(run)
            .arg(hub)
            .args(options)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let program = Program(command.spawn().unwrap());
        let mut started = Self { program, address: String::new(), token: String::new(), said: String::new() };
        let (sender, lines) = mpsc::channel();
        let errors = BufReader::new(started.program.0.stderr.take().unwrap());
        thread::spawn(move || errors.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        loop {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not listen: {}", started.said));
            started.said += &format!("{line}\n");
            if let Some(address) = line.strip_prefix("page at ") {
                // What it says later is of interest where a test fails.
                thread::spawn(move || lines.iter().for_each(|line| eprintln!("coordinator: {line}")));
                started.address = address.trim_end_matches('/').to_owned();
                started.token = fs::read_to_string(hub.join("http-token")).unwrap().trim().to_owned();
                return started;
            }
        }
    }

    /// Status and body of a GET with the token.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, &[("authorization", &format!("Bearer {}", self.token))])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let agent = agent();
        let mut request = agent.get(format!("{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = request.call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    pub(crate) fn json(&self, question: &str) -> Value {
        let (status, text) = self.get(&format!("/api/v1/{question}"));
        assert_eq!(status, 200, "{question}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Alarms once they were judged.
    pub(crate) fn alarms(&self) -> Value {
        let begin = Instant::now();
        loop {
            let alarms = self.json("alarms");
            if !alarms["judged"].is_null() {
                return alarms;
            }
            assert!(begin.elapsed() < PATIENCE, "alarms are not judged");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// One that returns answers of all kinds, and follows nothing.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    ureq::Agent::new_with_config(config.max_redirects_will_error(false).timeout_global(Some(PATIENCE)).build())
}
