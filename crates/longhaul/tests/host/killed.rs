//! `kill -9` of each command that changes or creates something, at random moments: what there is then is what there was before.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::alone;
use crate::state::{Bpf, Counted, all_bpf, changes, state};
use crate::world::{PATIENCE, Random, World, said, says_by};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::process::ended_child;
use longhaul_kernel::process_sockets::adopt_orphans;
use longhaul_testing::program::Program;

/// Moments at which each command is killed; `LONGHAUL_KILLS` asks for more.
const KILLS: usize = 1;
/// A command is killed within this time of its start, and before it ends by itself. With debug assertions a test begins after some 200 ms.
const LATEST: Duration = Duration::from_millis(700);
/// Runs of which one is to be killed before it ends.
const TRIES: usize = 10;

/// Kills until the end; 50 of each take some 25 minutes.
fn kills() -> usize {
    std::env::var("LONGHAUL_KILLS").ok().map_or(KILLS, |kills| kills.parse().expect("LONGHAUL_KILLS is a number"))
}

/// A command, and what belongs to it; its words are those of [`World::words`].
struct Case {
    /// Where it runs: on `near`, which tests, or on `far`.
    host: &'static str,
    words: &'static str,
    /// A command that is run to its end before this one.
    first: Option<&'static str>,
    /// A command on the other host that is started when this one says that it listens.
    beside: Option<&'static str>,
    /// A command on `far` that listens before this one starts, and until this one has ended.
    logging: Option<&'static str>,
    /// What removes that which it shall leave.
    undo: Option<&'static str>,
    /// What it may leave in its folder: what it was asked for, whole.
    products: &'static [&'static str],
}

impl Case {
    const fn near(words: &'static str) -> Self {
        Self { host: "near", words, first: None, beside: None, logging: None, undo: None, products: &[] }
    }

    const fn far(words: &'static str, beside: &'static str) -> Self {
        Self { host: "far", words, first: None, beside: Some(beside), logging: None, undo: None, products: &[] }
    }

    const fn after(self, first: &'static str) -> Self {
        Self { first: Some(first), ..self }
    }

    const fn to(self, logging: &'static str) -> Self {
        Self { logging: Some(logging), ..self }
    }

    const fn undo(self, undo: &'static str) -> Self {
        Self { undo: Some(undo), ..self }
    }

    const fn leaves(self, products: &'static [&'static str]) -> Self {
        Self { products, ..self }
    }
}

const CASES: &[Case] = &[
    Case::far("serve --bind 10.96.0.1 -p 7002 --key KEY", "tcp 10.96.0.1 -p 7002 --key KEY -t 300ms -C scalable"),
    Case::far(
        "serve --bind 10.96.0.1 -p 7002 --key KEY",
        "udp 10.96.0.1 -p 7002 --key KEY -b 10M -t 300ms --softirq same",
    ),
    Case::far(
        "serve --bind 10.96.0.1 -p 7002 --key KEY",
        "sweep 10.96.0.1 -p 7002 --key KEY -l 64 -b 1M -t 100ms --repeat 1 --gro on --defer 50us",
    ),
    Case::near("sweep 10.96.0.1 -p 7001 --key KEY -R -l 64 -b 1M -t 100ms --repeat 1 --gro on --defer 50us"),
    Case::near("tcp 10.96.0.1 -p 7001 --key KEY -t 300ms --no-sack --no-timestamps"),
    Case::near("udp 10.96.0.1 -p 7001 --key KEY -b 10M -t 300ms -R --softirq split -o OUT/udp")
        .leaves(&["udp", "udp/result.json"]),
    Case::near("udp 10.96.0.1 -p 7001 --key KEY -b 10M -t 300ms --softirq same"),
    Case::near("tcp 10.96.0.1 -p 7001 --key KEY -t 300ms -C scalable -o OUT/tcp").leaves(&[
        "tcp",
        "tcp/result.json",
        "tcp/samples.parquet",
    ]),
    Case::near("rtt 10.96.0.1 -p 7001 --key KEY -i 10ms -t 300ms -o OUT/rtt --html OUT/page.html").leaves(&[
        "rtt",
        "rtt/result.json",
        "rtt/probes-*.parquet",
        "page.html",
    ]),
    Case::near("rtt 10.96.0.1 --icmp -i 10ms -t 300ms -o OUT/rtt").leaves(&[
        "rtt",
        "rtt/result.json",
        "rtt/probes-*.parquet",
    ]),
    Case::near("rtt 10.96.0.1 --to-each-hop -c 5 --timeout 100ms"),
    Case::near("sweep 10.96.0.1 -p 7001 --key KEY -l 64 -b 1M -t 100ms --repeat 1 -o OUT/sweep --html OUT/page.html")
        .leaves(&["sweep", "sweep/result.json", "page.html"]),
    Case::far("log --bind 10.96.0.1 -p 7003 --key KEY -o OUT", "capture lf0 --to 10.96.0.1:7003 --key KEY -t 300ms")
        .leaves(&["*", "*/00000001.spool"]),
    Case::near("capture lf0 --to 10.96.0.1:7003 --key KEY -t 300ms")
        .to("log --bind 10.96.0.1 -p 7003 --key KEY -o OUT")
        .leaves(&["*", "*/00000001.spool"]),
    Case::near("capture lf0 -o OUT/spool").leaves(&["spool", "spool/00000001.spool"]),
    Case::near("capture lf0 -w OUT/packets.pcapng -t 200ms").leaves(&[
        "packets.pcapng",
        ".packets.pcapng.*.spool",
        ".packets.pcapng.*.spool/00000001.spool",
    ]),
    Case::near("filter attach lf0 --sample OUT/rejected.pcapng").leaves(&["rejected.pcapng"]),
    Case::near("filter attach lf0 --pin --for 60s").undo("filter detach lf0"),
    Case::near("filter detach lf0").after("filter attach lf0 --pin --for 60s").undo("filter detach lf0"),
    Case::near("filter confirm lf0").after("filter attach lf0 --pin --for 60s").undo("filter detach lf0"),
    Case::near("filter follow lf0").after("filter attach lf0 --pin --for 60s").undo("filter detach lf0"),
    Case::near("mix lf0 --pps 1000 --target 10.96.0.1 --target-mac 02:00:00:00:00:02"),
    Case::near("emulate --left va --right vb --path lan --stats OUT/status.json").leaves(&["status.json"]),
    Case::near("lab try --rtt 10ms --rate 100M --queue 64KiB -o OUT/try.toml -- sleep 0.5").leaves(&["try.toml"]),
    Case::near("lab up lan --name killedN").undo("lab down --name killedN"),
    Case::near("lab exec --name killedN client sleep 0.5")
        .after("lab up lan --name killedN")
        .undo("lab down --name killedN"),
    Case::near("lab set --name killedN delay=2ms").after("lab up lan --name killedN").undo("lab down --name killedN"),
    Case::near("lab down --name killedN").after("lab up lan --name killedN").undo("lab down --name killedN"),
    Case::near("lab run datatag-loss -o OUT/run").undo("lab down").leaves(&[
        "run",
        "run/runs.jsonl",
        "run/result.json",
        "run/report.html",
    ]),
    Case::near("lab run faults --measure --only policer-network,competing-udp --time 5s -o OUT/faults")
        .leaves(&["faults"]),
    Case::near("cc load scalable --as lh_killN").undo("cc unload lh_killN"),
    Case::near("cc load scalable --as lh_killedN -- sleep 0.5"),
    Case::near("cc unload lh_killN").after("cc load scalable --as lh_killN").undo("cc unload lh_killN"),
    Case::near("cc use htcp -- sleep 0.5"),
    Case::near("cc use htcp --to 192.0.2.0/24"),
    Case::near("tune --rate 10G --rtt 150ms --apply --for 60s --state OUT/tune").leaves(&["tune"]),
    Case::near("tune undo --state OUT/tune")
        .after("tune --rate 10G --rtt 150ms --apply --state OUT/tune")
        .undo("tune undo --state OUT/tune")
        .leaves(&["tune"]),
    Case::near("diagnose 10.96.0.1 -p 7001 --key KEY -R --gentle --rate 10M -t 5s --write OUT"),
    Case::near("diagnose trace SPOOL -o OUT/trace").leaves(&["trace", "trace/result.json"]),
    Case::near("pace 100M -- sleep 0.5"),
    Case::near("watch -o OUT/watch -- sleep 0.5").leaves(&["watch", "watch/result.json", "watch/samples.parquet"]),
    Case::near("watch --udp -o OUT/watch -- sleep 0.5").leaves(&["watch", "watch/result.json"]),
    Case::near("convert SPOOL OUT/all.parquet").leaves(&["all.parquet"]),
    Case::near("convert SPOOL OUT/all.pcapng.zst").leaves(&["all.pcapng.zst"]),
    Case::near("analyze SPOOL -o OUT/analyze --html OUT/page.html").leaves(&[
        "analyze",
        "analyze/result.json",
        "analyze/series.parquet",
        "page.html",
    ]),
    Case::near("compare --same-clock SPOOL SPOOL -o OUT/compare --html OUT/page.html").leaves(&[
        "compare",
        "compare/result.json",
        "compare/delays.parquet",
        "page.html",
    ]),
    Case::near("profile CORPUS/profile/ping -i 10ms -o OUT/copy.toml --netem OUT/netem").leaves(&[
        "copy.toml",
        "netem",
        "netem/forward.dist",
        "netem/backward.dist",
        "netem/netem.sh",
    ]),
    Case::near("verify lan --against CORPUS/profile/ping -i 10ms --html OUT/page.html").leaves(&["page.html"]),
    Case::near("verify lan --against CORPUS/profile/ping -i 10ms --measure OUT/measured").leaves(&[
        "measured",
        "measured/result.json",
        "measured/probes-*.parquet",
    ]),
    Case::near("report CORPUS/report/two-flows --html OUT/page.html").leaves(&["page.html"]),
    Case::near("man OUT/man").leaves(&["man", "man/*.1"]),
    Case::near("key new OUT/key").leaves(&["key"]),
];

impl World {
    /// A capture, to be read.
    fn record(&self) {
        let mut capture = self.spawn("near", &self.words("capture lf0 -o SPOOL -k 4000", 0));
        assert!(says_by(Instant::now() + PATIENCE, capture.stderr.take().unwrap(), "Ctrl-C ends"));
        let mix = self.words("mix lf0 --pps 0 -k 5000 --target 10.96.0.1 --target-mac 02:00:00:00:00:02", 0);
        assert!(self.spawn("near", &mix).wait().unwrap().success());
        assert!(capture.wait().unwrap().success());
    }

    /// A command on `far` that has said that it listens.
    fn listening(&self, words: &str) -> Program {
        let mut program = Program(self.spawn("far", &self.words(words, 0)));
        let stderr = program.0.stderr.take().unwrap();
        assert!(says_by(Instant::now() + PATIENCE, stderr, "Ctrl-C ends"), "longhaul {words} does not listen");
        program
    }

    fn state(&self, older: &Bpf) -> Counted {
        state(&[("near", &self.near), ("far", &self.far)], &self.folder, older)
    }

    /// Runs a case, kills it after `moment`, and asserts that nothing is left. Gives how long it took where it had ended before.
    fn kill(&self, case: &Case, number: usize, moment: Duration, older: &Bpf) -> Option<Duration> {
        let before = self.state(older);
        if let Some(first) = case.first {
            let status = self.spawn(case.host, &self.words(first, number)).wait().unwrap();
            assert!(status.success(), "longhaul {first}: {status}");
        }
        let logging = case.logging.map(|words| self.listening(words));
        let words = self.words(case.words, number);
        let mut child = self.spawn(case.host, &words);
        let began = Instant::now();
        let due = began + moment;
        let mut other = None;
        if let Some(beside) = case.beside
            && says_by(due, child.stderr.take().unwrap(), "Ctrl-C ends")
        {
            other = Some(self.spawn("near", &self.words(beside, number)));
        }
        while Instant::now() < due && child.try_wait().unwrap().is_none() {
            sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
        }
        let took = began.elapsed();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        let ended = (status.signal() != Some(nix::libc::SIGKILL)).then_some(took);
        // One that fails changes nothing. 3 is an answer, too: of `verify`, that a path is another one.
        if ended.is_some() && !matches!(status.code(), Some(0 | 3)) {
            let said = child.stderr.take().map(said).unwrap_or_default();
            panic!("longhaul {}: {status}: {said}", words.join(" "));
        }
        if let Some(mut other) = other {
            // It ends by itself, well or with an error. What it says has room in its pipe.
            other.wait().unwrap();
        }
        drop(logging);
        let deadline = Instant::now() + PATIENCE;
        let mut seen_always: Option<BTreeSet<String>> = None;
        loop {
            if let Some(undo) = case.undo {
                self.spawn(case.host, &self.words(undo, number)).wait().unwrap();
            }
            self.take_products(case);
            // Adopted: what a killed command started and did not wait for.
            while ended_child().unwrap().is_some() {}
            let mut left = changes(&before, &self.state(older));
            // Others load programs meanwhile: what is left is there each time.
            left.retain(|line| {
                !line.starts_with("bpf ") || seen_always.as_ref().is_none_or(|seen| seen.contains(line))
            });
            seen_always = Some(left.iter().cloned().collect());
            if left.is_empty() {
                return ended;
            }
            assert!(Instant::now() < deadline, "killed after {moment:?}, longhaul {} left: {left:#?}", words.join(" "));
            sleep(Duration::from_millis(20));
        }
    }

    /// Removes what the case may leave. A file among it that only appears when it is complete must be complete.
    fn take_products(&self, case: &Case) {
        let out = self.folder.join("out");
        let mut found: Vec<PathBuf> = Vec::new();
        for product in case.products {
            let mut matching = vec![out.clone()];
            for part in product.split('/') {
                let of = |folder: &PathBuf| -> Vec<PathBuf> {
                    let Some((first, last)) = part.split_once('*') else { return vec![folder.join(part)] };
                    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
                    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
                    let fits = |name: &String| name.starts_with(first) && name.ends_with(last);
                    names.filter(fits).map(|name| folder.join(name)).collect()
                };
                matching = matching.iter().flat_map(of).collect();
            }
            found.extend(matching.into_iter().filter(|path| path.exists()));
        }
        // Files before their folders.
        found.sort_by_key(|path| std::cmp::Reverse(path.as_os_str().len()));
        for path in found {
            if path.is_dir() {
                // What else is in it is not removed, and found then.
                let _ = fs::remove_dir(&path);
            } else {
                is_whole(&path);
                fs::remove_file(&path).unwrap();
            }
        }
    }
}

/// JSON is parsed, Parquet ends with its mark, and a key has its line.
fn is_whole(path: &Path) {
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).unwrap();
    match path.extension().and_then(|end| end.to_str()) {
        Some("json") => drop(serde_json::from_slice::<serde_json::Value>(&bytes).expect("it is whole")),
        Some("parquet") => assert!(bytes.ends_with(b"PAR1"), "{path:?}"),
        Some("html") => assert!(bytes.trim_ascii_end().ends_with(b"</html>"), "{path:?}"),
        Some(_) => {}
        None => assert!(!bytes.is_empty(), "{path:?}"),
    }
}

#[test]
fn a_killed_command_leaves_nothing() {
    let _alone = alone();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW (run as root)");
        return;
    }
    if !has_bpf_fs() {
        longhaul_testing::no_judge!("no BPF file system is mounted at /sys/fs/bpf");
        return;
    }
    adopt_orphans().unwrap();
    let seed = std::env::var("LONGHAUL_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(std::process::id()) << 20 | 1);
    println!("LONGHAUL_KILL_SEED={seed}");
    let mut random = Random(seed);
    let world = World::new("killed");
    world.record();
    let older = all_bpf();
    // How long each takes at least, as far as it matters.
    let mut times = [LATEST; CASES.len()];
    let (mut runs, mut killed) = (0, 0);
    for _ in 0..kills() {
        for (case, time) in CASES.iter().zip(&mut times) {
            let in_time = (0..TRIES).any(|_| {
                let moment = Duration::from_micros(random.next() % time.as_micros().max(1) as u64);
                runs += 1;
                let ended = world.kill(case, runs, moment, &older);
                *time = ended.map_or(*time, |took| took.min(*time));
                ended.is_none()
            });
            assert!(in_time, "longhaul {} ended {TRIES} times before it was killed", case.words);
            killed += 1;
        }
        println!("{killed} of {runs} runs of {} commands were ended by SIGKILL", CASES.len());
    }
}

/// Otherwise the kernel keeps the connections for minutes, and with them the namespace and a congestion control of BPF.
#[test]
fn a_killed_test_over_a_cut_path_leaves_no_connection() {
    let _alone = alone();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root)");
        return;
    }
    let world = World::new("reset");
    let connections = || world.sh("near", "ss -Htan state connected exclude time-wait").lines().count();
    let mut client = world.spawn("near", &world.words("tcp 10.96.0.1 -p 7001 --key KEY -t 60 -P 2", 0));
    world.until("a control connection and two flows", || connections() >= 3);
    world.sh("far", "ip link set lf1 down");
    client.kill().unwrap();
    client.wait().unwrap();
    world.until("the end of all connections", || connections() == 0);
}
