//! `/metrics`, as Debian's Prometheus reads them; the alert rules and the dashboard in `packaging/`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Coordinator, Folder, PATIENCE, agent, hub, names, results};

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
    child: Child,
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
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut started = Self { child, address: String::new() };
        let lines = BufReader::new(started.child.stderr.take().unwrap()).lines().map_while(Result::ok);
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

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let all = results(&sites, 24 * 10, |from, to, ago| if to == 2 && ago <= 10 { 60 } else { (from + to) as i64 % 2 });
    let coordinator = Coordinator::start(&hub(&folder, &sites, &all), &[]);
    assert_eq!(coordinator.alarms()["alarms"].as_array().unwrap().len(), 1);
    let (_, text) = coordinator.get("/metrics");
    assert!(text.ends_with("# EOF\n"), "{text}");

    let prometheus = Prometheus::start(&folder, &coordinator);
    let sum = |of: fn(&longhaul_mesh::store::TestResult) -> i64, sender: &str| -> i64 {
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
    assert_eq!(prometheus.found("longhaul_mesh_alarms")[0]["value"][1], "1");
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

#[test]
fn the_number_of_series_is_bounded() {
    let folder = Folder::new("series");
    let sites: Vec<String> = (0..70).map(|number| format!("s{number}")).collect();
    let all = results(&sites, 1, |_, _, _| 1);
    let coordinator = Coordinator::start(&hub(&folder, &sites, &all), &[]);
    let (status, text) = coordinator.get("/metrics");
    assert_eq!(status, 200);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    // 70 sites have 4,830 pairs: each site has eight series, and no pair has one.
    assert!((70 * 8..70 * 8 + 10).contains(&series), "{series}");
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    assert!(!names.iter().any(|name| name.starts_with("longhaul_mesh_pair")), "{names:?}");
}
