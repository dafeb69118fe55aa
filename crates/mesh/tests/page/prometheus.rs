//! `/metrics`, as Debian's Prometheus reads them; the alert rules and the dashboard in `packaging/`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Measured, Measurement, TestResult};
use longhaul_testing::program::Program;
use serde_json::Value;

use crate::common::{Coordinator, Folder, PATIENCE, agent, hub_of_all_kinds, measurements, names, results};
use crate::measured::followed;

fn packaging(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(file)
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        longhaul_testing::no_judge!("there is no {program}; install Debian's prometheus (make deps)");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn alert_rules_fire_when_they_should() {
    if has("promtool") {
        run("promtool", &["check", "rules", packaging("prometheus/longhaul-mesh.rules.yml").to_str().unwrap()]);
        run("promtool", &["test", "rules", packaging("prometheus/longhaul-mesh.rules.test.yml").to_str().unwrap()]);
    }
}

struct Prometheus {
    program: Program,
    address: String,
}

impl Prometheus {
    fn start(folder: &Folder, coordinator: &Coordinator) -> Self {
        let target = coordinator.address.strip_prefix("http://").unwrap();
        let (token, rules) = (folder.file("hub/http-token"), packaging("prometheus/longhaul-mesh.rules.yml"));
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n- job_name: longhaul-mesh\n  \
             authorization: {{credentials_file: '{}'}}\n  static_configs: [{{targets: ['{target}']}}]\n",
            rules.canonicalize().unwrap().display(),
            token.display()
        );
        fs::write(folder.file("prometheus.yml"), config).unwrap();
        let mut command = Command::new("prometheus");
        command.args(["--web.listen-address=127.0.0.1:0", "--log.format=logfmt"]);
        command.arg(format!("--config.file={}", folder.file("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.file("tsdb").display()));
        let program = Program(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut started = Self { program, address: String::new() };
        let lines = BufReader::new(started.program.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let (sender, said) = std::sync::mpsc::channel();
        thread::spawn(move || lines.for_each(|line| drop(sender.send(line))));
        loop {
            let line = said.recv_timeout(PATIENCE).expect("Prometheus says where it listens");
            // First it says what it was asked for, port 0.
            let port = line
                .split_once("address=127.0.0.1:")
                .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
            if let Some(port) = port.filter(|port| *port != "0") {
                // Read on, or it would stop when the pipe is full.
                thread::spawn(move || said.iter().for_each(drop));
                started.address = format!("http://127.0.0.1:{port}");
                return started;
            }
        }
    }

    fn ask(&self, path: &str, query: &str) -> Value {
        let begin = Instant::now();
        loop {
            let request = agent().get(format!("{}/api/v1/{path}", self.address)).query("query", query);
            let mut answer = request.call().unwrap();
            // It listens before it is ready.
            if answer.status().as_u16() != 503 {
                return serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
            }
            assert!(begin.elapsed() < PATIENCE, "Prometheus is not ready");
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// What a query finds, once it finds something.
    fn found(&self, query: &str) -> Vec<Value> {
        let begin = Instant::now();
        loop {
            let answer = self.ask("query", query);
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            let found = answer["data"]["result"].as_array().unwrap();
            if !found.is_empty() {
                return found.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "{query} finds nothing; targets: {}", self.ask("targets", ""));
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// All queries of the dashboard's panels, with the title of each panel.
fn panels(dashboard: &Value) -> Vec<(String, String)> {
    let panel = |panel: &Value| {
        let targets = panel["targets"].as_array().unwrap().iter();
        let title = panel["title"].as_str().unwrap().to_owned();
        targets.map(|target| (title.clone(), target["expr"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
    };
    dashboard["panels"].as_array().unwrap().iter().flat_map(panel).collect()
}

#[test]
fn prometheus_reads_the_numbers_of_the_store() {
    if !has("prometheus") {
        return;
    }
    let folder = Folder::new("prometheus");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle"]);
    let mut all =
        results(&sites, 24 * 10, |from, to, ago| if to == 2 && ago <= 10 { 60 } else { (from + to) as i64 % 2 });
    // Tokyo, which lies, says that very many of its packets came to chicago.
    let (id, sender, receiver) = ("f".repeat(32), "tokyo".into(), "chicago".into());
    let at_ns = all.last().unwrap().at_ns;
    all.push(TestResult { id, sender, receiver, at_ns, sent: 100_000_000, lost: 0, ..all[0].clone() });
    let measured = measurements(&sites, 48, |_, _, _| Some(1.0));
    let coordinator = Coordinator::start(&hub_of_all_kinds(&folder, &sites, &all, &measured), &[]);
    assert_eq!(coordinator.alarms()["alarms"].as_array().unwrap().len(), 1);
    followed(&coordinator, "rtt", 48 * 2 * 10);
    followed(&coordinator, "goodput", 48 / 2 * 20);
    let (_, text) = coordinator.get("/metrics");
    assert!(text.ends_with("# EOF\n"), "{text}");

    let prometheus = Prometheus::start(&folder, &coordinator);
    let sum = |of: fn(&TestResult) -> i64, sender: &str| -> i64 {
        all.iter().filter(|result| result.sender == sender && result.receiver == "chicago").map(of).sum()
    };
    for sender in ["ithaca", "tokyo"] {
        for (name, expected) in [
            ("tests", sum(|_| 1, sender)),
            ("packets", sum(|result| result.sent, sender)),
            ("lost_packets", sum(|result| result.lost, sender)),
        ] {
            let query = format!("longhaul_mesh_pair_{name}_total{{sender=\"{sender}\",receiver=\"chicago\"}}");
            let found = prometheus.found(&query);
            assert_eq!(found[0]["value"][1].as_str().unwrap().parse::<i64>().unwrap(), expected, "{query}");
        }
    }
    let received: i64 = all.iter().filter(|result| result.receiver == "chicago").map(|result| result.lost).sum();
    let query = "longhaul_mesh_site_lost_packets_total{site=\"chicago\",direction=\"received\"}";
    assert_eq!(prometheus.found(query)[0]["value"][1].as_str().unwrap().parse::<i64>().unwrap(), received);
    // Each of the others has lost 0.25 % of a day's packets, or a little more.
    let query = "longhaul_mesh_site_loss_ratio{site=\"chicago\",direction=\"received\"}";
    let loss: f64 = prometheus.found(query)[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((0.0024..0.003).contains(&loss), "{loss}");
    assert_eq!(prometheus.found("longhaul_mesh_alarms")[0]["value"][1], "1");
    round_trips_and_goodput(&prometheus, &coordinator, &measured);
    // An alarm of the mesh becomes an alert.
    let alert = prometheus.found("ALERTS{alertname=\"LonghaulMeshAlarm\"}");
    assert_eq!(alert[0]["metric"]["alarm"], "receiver:chicago");

    let dashboard = fs::read_to_string(packaging("grafana/longhaul-mesh.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let queries = panels(&dashboard);
    assert!(queries.len() >= 6, "{queries:?}");
    for (title, query) in queries {
        // Grafana puts these in.
        let query = query.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$site", ".*");
        println!("{title}: {} series", prometheus.found(&query).len());
    }
}

/// Of the pair that ithaca probes, and of TCP between the two.
fn round_trips_and_goodput(prometheus: &Prometheus, coordinator: &Coordinator, measured: &[Measurement]) {
    let pair = "{sender=\"ithaca\",receiver=\"chicago\"}";
    let value = |name: &str, labels: &str| -> f64 {
        prometheus.found(&format!("longhaul_mesh_{name}{labels}"))[0]["value"][1].as_str().unwrap().parse().unwrap()
    };
    // One hour ago 25.01 ms, two hours ago 25.02 ms: the greater one, unless another hour has begun.
    let (median, p99) = (value("pair_round_trip_median_seconds", pair), value("pair_round_trip_p99_seconds", pair));
    assert!((0.025009..0.025021).contains(&median), "{median}");
    assert!((0.03126..0.03128).contains(&p99), "{p99}");
    let probes = |is_own: &dyn Fn(&Measurement) -> bool| {
        let own = measured.iter().filter(|one| is_own(one));
        let trips = own.filter_map(|one| if let Measured::Rtt(trips) = &one.measured { Some(trips) } else { None });
        trips.fold((0, 0), |(sent, lost), trips| (sent + trips.sent, lost + trips.lost))
    };
    let of_pair = probes(&|one| one.sender == "ithaca" && one.receiver == "chicago");
    let given = ["pair_probes_total", "pair_lost_probes_total"].map(|name| value(name, pair) as i64);
    assert_eq!((given[0], given[1]), of_pair);
    let of_site = probes(&|one| one.sender == "chicago" || one.receiver == "chicago");
    let site = "{site=\"chicago\"}";
    let given = ["site_probes_total", "site_lost_probes_total"].map(|name| value(name, site) as i64);
    assert_eq!((given[0], given[1]), of_site);
    assert_eq!(value("site_outages_total", site), 0.0);
    let answer = coordinator.json("pairs?days=1&metric=goodput");
    let is_own = |of: &&Value| of["sender"] == "ithaca" && of["receiver"] == "chicago";
    let own = answer["pairs"].as_array().unwrap().iter().find(is_own).unwrap();
    for (name, key) in [("pair_goodput_bits_per_second", "median_bps"), ("pair_paced_bits_per_second", "paced_bps")] {
        assert_eq!(value(name, pair), own["goodput"][key].as_f64().unwrap(), "{name}");
    }
    // Chicago receives from four others: the third of them in order.
    let received = answer["pairs"].as_array().unwrap().iter().filter(|of| of["receiver"] == "chicago");
    let mut received: Vec<f64> = received.map(|of| of["goodput"]["median_bps"].as_f64().unwrap()).collect();
    received.sort_by(f64::total_cmp);
    let given = value("site_goodput_bits_per_second", "{site=\"chicago\",direction=\"received\"}");
    assert_eq!((received.len(), given), (4, received[2]));
}

#[test]
fn the_number_of_series_is_bounded() {
    let folder = Folder::new("series");
    let sites: Vec<String> = (0..70).map(|number| format!("s{number}")).collect();
    let all = results(&sites, 1, |_, _, _| 1);
    // Of two sites with all others: enough for a series of each kind of each site, but that of TCP that others send.
    let mut measured = measurements(&sites, 2, |_, _, _| Some(1.0));
    measured.retain(|one| one.sender == "s0" || one.sender == "s1");
    let coordinator = Coordinator::start(&hub_of_all_kinds(&folder, &sites, &all, &measured), &[]);
    followed(&coordinator, "rtt", 2 * 2 * (69 + 68));
    followed(&coordinator, "goodput", 2 * 69);
    let (status, text) = coordinator.get("/metrics");
    assert_eq!(status, 200);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    // 70 sites have 4,830 pairs: each site has 16 series at most, and no pair has one.
    let expected = 70 * 15 + 2;
    assert!((expected..expected + 10).contains(&series), "{series}");
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    assert!(!names.iter().any(|name| name.starts_with("longhaul_mesh_pair")), "{names:?}");
}
