//! `make mesh-demo`: eight sites in a lab test each other over an emulated path; one receives badly, one path is bad, and the mesh names both.
//!
//! All traffic is real: `longhaul udp` between network namespaces, with the locations of its losses. Time is compressed: the packets of one test
//! stand for many hours, in the order of their sequence numbers, so that days fit into minutes. The faults begin between the first round of tests
//! and the second. From there on all is as in a mesh: store, judging, page.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_mesh::store::{Archive, TestResult};
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::schedule::Schedule;
use longhaul_testing::program::Program;
use serde_json::Value;

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Sites on the left and on the right of the emulated path.
const SITES: [&str; 8] = ["ithaca", "geneva", "chicago", "tokyo", "seattle", "atlanta", "houston", "denver"];
/// Who drops a hundredth of what it receives, in its firewall.
const RECEIVER: &str = "houston";
/// The path that loses two hundredths.
const PATH: (&str, &str) = ("tokyo", "denver");
/// Hours before the faults begin: the mesh wants two days until it knows what is usual, and a day that it judges.
const HOURS_BEFORE: i64 = 80;
/// Hours with the faults: a path is judged by a day.
const HOURS_AFTER: i64 = 30;
/// Packets of a pair in an hour.
const PACKETS: i64 = 300;
const PACKETS_A_SECOND: i64 = 8000;
const LENGTH: i64 = 500;
const HOUR_NS: i64 = 3_600_000_000_000;

fn main() -> Done<()> {
    let begin = Instant::now();
    let lab = Lab::up()?;
    println!("eight sites in a lab: {}", SITES.join(", "));
    let mesh = lab.plan()?;
    let servers = lab.serve()?;
    let first = now_ns() / HOUR_NS - HOURS_BEFORE - HOURS_AFTER;
    let mut archive = Archive::open(&lab.folder.join("hub/archive")).map_err(|error| error.to_string())?;
    let mut round = |hours: i64, from: i64, faults: bool| -> Done<()> {
        let results = lab.round(&mesh, hours, from, faults)?;
        let (sent, lost) = results.iter().fold((0, 0), |sum, result| (sum.0 + result.sent, sum.1 + result.lost));
        let taken = archive.take(&results).map_err(|error| error.to_string())?;
        println!(
            "{hours} hours of all 56 pairs: {taken} results, {sent} packets, {lost} lost; after {} s",
            begin.elapsed().as_secs()
        );
        Ok(())
    };
    println!("first round, nothing is broken …");
    round(HOURS_BEFORE, first, false)?;
    let drop_some = "add table inet bad; add chain inet bad in { type filter hook input priority 0; }; \
         add rule inet bad in meta l4proto udp numgen random mod 100 == 0 drop";
    lab.on(RECEIVER, &["nft", drop_some])?;
    println!(
        "now {RECEIVER} drops 1 % of what it receives, and the path from {} to {} loses 2 %; second round …",
        PATH.0, PATH.1
    );
    round(HOURS_AFTER, first + HOURS_BEFORE, true)?;
    drop((servers, archive));
    let status = Command::new(lab.mesh()).args(["status", "--folder"]).arg(lab.folder.join("hub")).output()?;
    let said = String::from_utf8(status.stdout)?;
    println!(
        "look at it: {} run --coordinator --folder {} --http 127.0.0.1:8080 --public",
        lab.mesh().display(),
        lab.folder.join("hub").display()
    );
    let named: Vec<&str> = said.lines().filter(|line| line.contains(" more than usual ")).collect();
    named.iter().for_each(|line| println!("{line}"));
    let has = |text: String| named.iter().any(|line| line.starts_with(&text));
    if named.len() == 2
        && has(format!("what {RECEIVER} receives loses"))
        && has(format!("the path from {} to {} loses", PATH.0, PATH.1))
    {
        return Ok(());
    }
    Err(format!("the mesh does not name these two alone: {said}").into())
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

/// A lab that ends with this value, and where its files are.
struct Lab {
    longhaul: PathBuf,
    name: String,
    folder: PathBuf,
}

impl Lab {
    fn up() -> Done<Self> {
        // This program is in target/debug/examples.
        let own = std::env::current_exe()?;
        let programs = own.parent().and_then(Path::parent).ok_or("no folder of programs")?;
        let folder = programs.with_file_name("mesh-demo");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let lab =
            Self { longhaul: programs.join("longhaul"), name: format!("mesh-demo-{}", std::process::id()), folder };
        let host = |number: usize| {
            format!("[[{}]]\nname = '{}'\n", if number < 4 { "client" } else { "server" }, SITES[number])
        };
        let hosts: String = (0..SITES.len()).map(host).collect();
        let path = lab.folder.join("path.toml");
        fs::write(&path, format!("{hosts}[[both]]\nrate = '10Gbit'\ndelay = '5ms'\n"))?;
        run(Command::new(&lab.longhaul).args(["lab", "up", "--name", &lab.name]).arg(path))?;
        Ok(lab)
    }

    fn mesh(&self) -> PathBuf {
        self.longhaul.with_file_name("longhaul-mesh")
    }

    fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.longhaul);
        command.args(["lab", "exec", "--name", &self.name, host, "--"]).args(arguments);
        command
    }

    fn on(&self, host: &str, arguments: &[&str]) -> Done<String> {
        run(&mut self.command(host, arguments))
    }

    /// The mesh of the eight hosts, checked by `longhaul mesh init`.
    fn plan(&self) -> Done<Mesh> {
        let mut text = "name = 'demo'\n[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '1h'\ntime = '60s'\nrate = '1M'\nlength = 500\n".to_owned();
        for site in SITES {
            let said = self.on(site, &["ip", "-4", "-o", "addr", "show", "eth0"])?;
            let address =
                said.split_whitespace().skip_while(|word| *word != "inet").nth(1).ok_or("a host has no address")?;
            let address = address.split('/').next().unwrap_or_default();
            text += &format!("[[site]]\nname = '{site}'\naddress = '{address}'\nrate = '10Gbit'\n");
        }
        let file = self.folder.join("mesh.toml");
        fs::write(&file, &text)?;
        run(Command::new(self.mesh()).arg("init").arg(&file).arg("--folder").arg(self.folder.join("hub")))?;
        Ok(Mesh::parse(&text)?)
    }

    fn serve(&self) -> Done<Vec<Program>> {
        let longhaul = self.longhaul.to_string_lossy();
        let start = |site: &&str| {
            let mut command = self.command(site, &[&longhaul, "serve", "--no-auth", "--bind", "0.0.0.0"]);
            Ok(Program(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
        };
        SITES.iter().map(start).collect()
    }

    /// A round of tests as the mesh would schedule it, cut into `hours` hours from hour `from` on.
    fn round(&self, mesh: &Mesh, hours: i64, from: i64, faults: bool) -> Done<Vec<TestResult>> {
        let schedule = Schedule::make(mesh)?;
        let is_bad = |pair: &(SiteId, SiteId)| (mesh.of(pair.0).name.as_str(), mesh.of(pair.1).name.as_str()) == PATH;
        let mut results = Vec::new();
        for slot in schedule.rounds[0].slots_of(mesh, 0) {
            // The path in the middle is the same for all: it loses only while the bad one is tested, alone.
            let (bad, good): (Vec<_>, Vec<_>) = slot.pairs.into_iter().partition(|pair| faults && is_bad(pair));
            let tested = thread::scope(|scope| {
                let start = |pair| scope.spawn(move || self.test(mesh, pair, hours, from));
                let running: Vec<_> = good.into_iter().map(start).collect();
                running
                    .into_iter()
                    .map(|one| one.join().unwrap_or_else(|_| Err("a test panicked".into())))
                    .collect::<Vec<_>>()
            });
            for pair in bad {
                self.set("forward.loss=random(2%)")?;
                results.extend(self.test(mesh, pair, hours, from)?);
                self.set("forward.loss=none")?;
            }
            for hours in tested {
                results.extend(hours?);
            }
        }
        Ok(results)
    }

    fn set(&self, change: &str) -> Done<()> {
        run(Command::new(&self.longhaul).args(["lab", "set", "--name", &self.name, change])).map(drop)
    }

    /// One test of a pair, as its hours.
    fn test(&self, mesh: &Mesh, (from, to): (SiteId, SiteId), hours: i64, first: i64) -> Done<Vec<TestResult>> {
        let (sender, receiver) = (mesh.of(from), mesh.of(to));
        let rate = (PACKETS_A_SECOND * LENGTH * 8).to_string();
        let packets = (hours * PACKETS).to_string();
        let longhaul = self.longhaul.to_string_lossy();
        let test = [
            &longhaul,
            "udp",
            &receiver.addresses[0],
            "--json",
            "--wire",
            "-b",
            &rate,
            "-l",
            &LENGTH.to_string(),
            "-k",
            &packets,
        ];
        // A server may still be starting.
        let begin = Instant::now();
        let said = loop {
            match self.on(&sender.name, &test) {
                Err(error) if begin.elapsed() > Duration::from_secs(20) => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(200)),
                Ok(said) => break said,
            }
        };
        let result: Value = serde_json::from_str(&said)?;
        let result = &result["result"];
        let seen = result["location_method"] == "bpf";
        let rate = result["received_rate_bps"].as_f64().unwrap_or(0.0) as i64;
        let mut own: Vec<TestResult> = (0..hours)
            .map(|hour| TestResult {
                id: format!("{:032x}", ((first + hour) as u128) << 32 | u128::from(from.0) << 16 | u128::from(to.0)),
                test: "probes".into(),
                sender: sender.name.clone(),
                receiver: receiver.name.clone(),
                at_ns: (first + hour) * HOUR_NS + i64::from(from.0 * 8 + to.0) * 1_000_000_000,
                sent: PACKETS,
                lost: 0,
                at_sender: seen.then_some(0),
                at_receiver: seen.then_some(0),
                received_rate_bps: rate,
            })
            .collect();
        for run in result["losses"].as_array().ok_or("no list of losses")? {
            let first = run["first_sequence"].as_i64().ok_or("a loss has no number")?;
            let location = run["location"].as_str().unwrap_or_default();
            for number in first..first + run["packets"].as_i64().unwrap_or(0) {
                let Some(hour) = own.get_mut(usize::try_from(number / PACKETS)?) else { continue };
                hour.lost += 1;
                let place = if location.starts_with("sender_") { &mut hour.at_sender } else { &mut hour.at_receiver };
                if let (true, Some(count)) =
                    (location.starts_with("sender_") || location.starts_with("receiver_"), place)
                {
                    *count += 1;
                }
            }
        }
        Ok(own)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What is left of it the next lab of this name clears.
        let _ = Command::new(&self.longhaul).args(["lab", "down", "--name", &self.name]).output();
    }
}

fn run(command: &mut Command) -> Done<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
