//! Path files as users write them: what is read, what is refused and how it is said, and that what is written reads back.

use std::io;
use std::sync::Arc;

use longhaul_path::law::Table;
use longhaul_path::spec::*;
use longhaul_units::{BitRate, Bytes, Nanos};

fn parse(text: &str) -> Result<PathSpec, SpecError> {
    PathSpec::parse(text, &|name| match name {
        "drops.txt" => Ok("# lost on Tuesday\n5\n1\n9-12 # a burst\n\n5\n".into()),
        "wan.dist" => Ok("# a table\n -8192 0 8192\n".into()),
        "bad.txt" => Ok("1\nx\n".into()),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
    })
}

fn refusal(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn every_key_is_read() {
    let spec = parse(
        r#"
        name = "all"
        source = "a test"
        [[client]]
        name = "alice"
        rate = "25Gbit"
        delay = "10us"
        queue = "1000p"
        mtu = 9000
        [[server]]
        [[forward]]
        name = "edge"
        loss = { gilbert-elliott = { p = "1%", r = "25%" } }
        outages = [{ at = "10s", for = "50ms", every = "60s" }, { at = "5s", for = "1s" }]
        duplicate = "0.1%"
        corrupt = 1e-6
        mtu = { bytes = 1400, icmp = false }
        policer = { rate = "100Mbit", burst = "64KiB" }
        queue = "64MiB"
        rate = "9.28Gbit"
        layer = "L2"
        delay = "250ms"
        delay-steps = [{ at = "60s", delay = "80ms" }, { at = "90s", delay = "1ms", for = "5s", every = "10m" }]
        jitter = { law = "normal", stddev = "8.45us", order = "free" }
        coalesce = { time = "50us", count = 8 }
        "#,
    )
    .unwrap();
    let hop = HopSpec {
        name: Some("edge".into()),
        loss: LossSpec::GilbertElliott {
            p: Probability(0.01),
            r: Probability(0.25),
            h: Probability(0.0),
            k: Probability(1.0),
        },
        outages: vec![
            Outage { at: Nanos::from_secs(10), lasting: Nanos::from_millis(50), every: Some(Nanos::from_secs(60)) },
            Outage { at: Nanos::from_secs(5), lasting: Nanos::from_secs(1), every: None },
        ],
        duplicate: Probability(0.001),
        corrupt: Probability(1e-6),
        mtu: Some(MtuSpec { bytes: 1400, icmp: false }),
        policer: Some(PolicerSpec { rate: BitRate(100_000_000), burst: Bytes(64 << 10) }),
        queue: QueueLimit::Bytes(Bytes(64 << 20)),
        rate: Some(BitRate(9_280_000_000)),
        layer: Layer::L2,
        delay: Nanos::from_millis(250),
        delay_steps: DelaySteps::At(vec![
            DelayStep { at: Nanos::from_secs(60), delay: Nanos::from_millis(80), lasting: None, every: None },
            DelayStep {
                at: Nanos::from_secs(90),
                delay: Nanos::from_millis(1),
                lasting: Some(Nanos::from_secs(5)),
                every: Some(Nanos::from_secs(600)),
            },
        ]),
        jitter: Some(JitterSpec { law: Law::Normal, stddev: Nanos(8_450), order: Order::Free, correlation: None }),
        coalesce: Some(CoalesceSpec { time: Nanos::from_micros(50), count: Some(8.try_into().unwrap()) }),
    };
    let alice = HostSpec {
        name: Some("alice".into()),
        rate: Some(BitRate::from_gbit(25)),
        delay: Nanos::from_micros(10),
        queue: QueueLimit::Packets(1000),
        mtu: Some(9000),
    };
    let want = PathSpec {
        name: "all".into(),
        source: "a test".into(),
        forward: vec![hop],
        backward: vec![],
        clients: vec![alice],
        servers: vec![HostSpec::default()],
    };
    assert_eq!(spec, want);
}

#[test]
fn an_empty_file_is_a_wire() {
    assert_eq!(parse("").unwrap(), PathSpec::default());
}

/// `both` hops are near the clients, so backward meets them last and in reverse.
#[test]
fn both_is_mirrored() {
    let spec = parse(
        r#"
        [[backward]]
        name = "own-back"
        [[both]]
        name = "near"
        [[forward]]
        name = "own-there"
        [[both]]
        name = "far"
        "#,
    )
    .unwrap();
    assert_eq!(spec.hop_names(Direction::Forward), ["near", "far", "own-there"]);
    assert_eq!(spec.hop_names(Direction::Backward), ["own-back", "far", "near"]);
}

#[test]
fn every_form_of_loss() {
    let chance = |p| LossSpec::Random(Probability(p));
    let list = |numbers: &[u64]| LossSpec::List(numbers.iter().copied().collect());
    let every = LossSpec::Every(30_000.try_into().unwrap());
    for (text, want) in [
        (r#"{ random = "0.01%" }"#, chance(1e-4)),
        (r#"{ random = "1e-4" }"#, chance(1e-4)),
        ("{ random = 0.0001 }", chance(1e-4)),
        ("{ random = 1 }", chance(1.0)),
        ("{ every = 30_000 }", every.clone()),
        (r#""every(30000)""#, every),
        (r#"{ list = "drops.txt" }"#, list(&[1, 5, 9, 10, 11, 12])),
        (r#"{ list = [3, "1-2", 2] }"#, list(&[1, 2, 3])),
        (r#""list(1,5,9-12)""#, list(&[1, 5, 9, 10, 11, 12])),
        (r#""none""#, LossSpec::None),
    ] {
        let spec = parse(&format!("[[forward]]\nloss = {text}")).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(spec.forward[0].loss, want, "{text}");
    }
}

#[test]
fn a_table_of_jitter() {
    let table = Law::Table(Arc::new(Table::new(vec![-1.0, 0.0, 1.0]).unwrap()));
    for source in [r#"file = "wan.dist""#, "quantiles = [0.0, 1, -1]"] {
        let text = format!("[[forward]]\ndelay = \"1ms\"\njitter = {{ law = \"table\", stddev = \"1ms\", {source} }}");
        assert_eq!(parse(&text).unwrap().forward[0].jitter.as_ref().unwrap().law, table, "{source}");
    }
}

/// Each wrong value is answered by one line with place, value and what is allowed.
#[test]
fn what_is_refused_and_how() {
    for (line, want) in [
        (
            "rat = \"1Gbit\"",
            "line 2, column 1: forward[0].rat: no such key, did you mean rate? use name, loss, outages, duplicate, corrupt, mtu, policer, queue, rate, layer, delay, delay-steps, jitter, coalesce",
        ),
        (
            "rate = \"10Gbyte\"",
            "line 2, column 8: forward[0].rate: `10Gbyte`: unknown unit `Gbyte`, use one of bit, kbit, Mbit, Gbit, Tbit (or k, M, G, T)",
        ),
        ("rate = \"0\"", "line 2, column 8: forward[0].rate: `0bit`: from 2kbit to 10000Gbit"),
        (
            "rate = \"-1Gbit\"",
            "line 2, column 8: forward[0].rate: `-1Gbit` is not a number of 0 or more with a unit (bit, kbit, Mbit, Gbit, Tbit (or k, M, G, T))",
        ),
        ("rate = 1000", "line 2, column 8: forward[0].rate: `1000`: a text such as \"9.28Gbit\""),
        ("delay = \"11s\"", "line 2, column 9: forward[0].delay: `11s`: from 0ns to 10s"),
        (
            "delay = \"nan\"",
            "line 2, column 9: forward[0].delay: `nan` is not a number of 0 or more with a unit (ns, us, ms, s, m, h)",
        ),
        ("queue = \"0\"", "line 2, column 9: forward[0].queue: `0B`: from 1B to 1TiB"),
        ("queue = \"0p\"", "line 2, column 9: forward[0].queue: `0`: from 1 to 1000000000"),
        (
            "queue = \"5 pots\"",
            "line 2, column 9: forward[0].queue: `5 pots`: use bytes (64MiB), packets (1000p) or unlimited",
        ),
        ("mtu = 60", "line 2, column 7: forward[0].mtu: `60`: from 68 to 65535"),
        (
            "mtu = \"1400,quiet\"",
            "line 2, column 7: forward[0].mtu: `1400,quiet`: use none, BYTES or BYTES,silent, such as 1400",
        ),
        ("mtu = { icmp = false }", "line 2, column 7: forward[0].mtu: bytes is missing, such as bytes = 1400"),
        ("mtu = { bytes = 1400, icmp = 1 }", "line 2, column 30: forward[0].mtu.icmp: `1`: true or false"),
        (
            "policer = { rate = \"1Gbit\" }",
            "line 2, column 11: forward[0].policer: burst is missing, such as burst = \"64KiB\"",
        ),
        (
            "policer = { rate = \"1kbit\", burst = \"64KiB\" }",
            "line 2, column 11: forward[0].policer: rate `1kbit`: from 2kbit to 10000Gbit",
        ),
        ("policer = \"1Gbit,0\"", "line 2, column 11: forward[0].policer: burst `0B`: from 1B to 1TiB"),
        (
            "policer = \"1Gbit\"",
            "line 2, column 11: forward[0].policer: `1Gbit`: use none or RATE,BURST, such as 100Mbit,64KiB",
        ),
        (
            "policer = 5",
            "line 2, column 11: forward[0].policer: `5`: { rate = \"100Mbit\", burst = \"64KiB\" } or \"none\"",
        ),
        (
            "policer = { rate = \"1Gbit\", burst = \"64KiB\", peak = 1 }",
            "line 2, column 46: forward[0].policer.peak: no such key, use rate, burst",
        ),
        ("delay-steps = [{ at = \"1s\" }]", "line 2, column 16: forward[0].delay-steps[0]: delay is missing, a time"),
        ("delay-steps = \"1s,11s\"", "line 2, column 15: forward[0].delay-steps: delay `11s`: from 0ns to 10s"),
        ("delay-steps = \"1s,1ms,2s,1s\"", "line 2, column 15: forward[0].delay-steps: every `1s`: from 2s to 720h"),
        (
            "delay-steps = { every = \"1s\", delays = [] }",
            "line 2, column 15: forward[0].delay-steps: 0 delays, from 1 to 1000",
        ),
        (
            "delay-steps = { every = \"1s\" }",
            "line 2, column 15: forward[0].delay-steps: delays is missing, a list of times",
        ),
        (
            "delay-steps = \"5s\"",
            "line 2, column 15: forward[0].delay-steps: `5s`: use none, AT,DELAY, AT,DELAY,FOR or AT,DELAY,FOR,EVERY, several separated by `;`, or random(EVERY,DELAY,…)",
        ),
        (
            "delay = \"9ms\"\ndelay-steps = \"1s,3ms\"\njitter = \"normal(2ms)\"",
            "line 4, column 10: forward[0].jitter: stddev `2ms`: at most 1ms for law normal around a delay of 3ms, or packets would leave before they came",
        ),
        ("layer = \"L3\"", "line 2, column 9: forward[0].layer: `L3`: use L1 or L2"),
        (
            "loss = { random = 1.5 }",
            "line 2, column 19: forward[0].loss.random: `1.5`: a probability is from 0 to 1, or 0% to 100%",
        ),
        (
            "loss = { random = nan }",
            "line 2, column 19: forward[0].loss.random: `nan`: a probability is from 0 to 1, or 0% to 100%",
        ),
        (
            "loss = { random = \"-1%\" }",
            "line 2, column 19: forward[0].loss.random: `-1%`: a probability is from 0 to 1, or 0% to 100%",
        ),
        ("loss = { every = 0 }", "line 2, column 18: forward[0].loss.every: `0`: a whole number from 1"),
        (
            "loss = { every = 2, random = 1 }",
            "line 2, column 8: forward[0].loss: one of random, every, gilbert-elliott, list and bursts",
        ),
        (
            "loss = { gilbert-elliott = { p = 0.1 } }",
            "line 2, column 28: forward[0].loss.gilbert-elliott: r is missing, a probability",
        ),
        (
            "loss = { gilbert-elliott = { p = 0.1, r = 1, h = 2 } }",
            "line 2, column 50: forward[0].loss.gilbert-elliott.h: `2`: a probability is from 0 to 1, or 0% to 100%",
        ),
        (
            "loss = { bursts = { for = \"2s\", every = \"1s\" } }",
            "line 2, column 8: forward[0].loss: for `2s`: from 1ns to 1s",
        ),
        ("loss = { bursts = { for = \"2s\" } }", "line 2, column 19: forward[0].loss.bursts: every is missing, a time"),
        ("loss = { list = \"gone.txt\" }", "line 2, column 17: forward[0].loss.list: `gone.txt`: no such file"),
        (
            "loss = { list = \"bad.txt\" }",
            "line 2, column 17: forward[0].loss.list: `x`: a list has packet numbers from 1 and ranges like 9-12",
        ),
        (
            "loss = { list = [\"1-99999999999\"] }",
            "line 2, column 17: forward[0].loss.list: `1-99999999999`: a list has at most 10000000 packets",
        ),
        (
            "loss = true",
            "line 2, column 8: forward[0].loss: `true`: \"none\", { random = \"0.01%\" }, { every = 30000 }, { gilbert-elliott = { p, r } }, { list } or { bursts = { for, every } }",
        ),
        (
            "loss = \"sometimes\"",
            "line 2, column 8: forward[0].loss: `sometimes`: use none, random(P), every(N), gilbert-elliott(P,R), gilbert-elliott(P,R,H,K), list(1,5,9-12), bursts(FOR,EVERY), bursts(FOR,EVERY,LOST,OTHERWISE) or a probability alone, such as 0.01%",
        ),
        ("outages = [{ at = \"1s\" }]", "line 2, column 12: forward[0].outages[0]: for is missing, a time"),
        (
            "outages = [{ at = \"1s\", for = \"2s\", every = \"1s\" }]",
            "line 2, column 11: forward[0].outages: every `1s`: from 2s to 720h",
        ),
        (
            "jitter = { law = \"gauss\", stddev = \"1us\" }",
            "line 2, column 18: forward[0].jitter.law: `gauss`: use one of normal, uniform, pareto, paretonormal, table",
        ),
        ("jitter = { law = \"normal\" }", "line 2, column 10: forward[0].jitter: stddev, a time, is missing"),
        (
            "jitter = { law = \"table\", stddev = \"1us\" }",
            "line 2, column 10: forward[0].jitter: law table needs one of file and quantiles",
        ),
        (
            "delay = \"3ms\"\njitter = { law = \"normal\", stddev = \"2ms\" }",
            "line 3, column 10: forward[0].jitter: stddev `2ms`: at most 1ms for law normal around a delay of 3ms, or packets would leave before they came",
        ),
        (
            "coalesce = { count = 8 }",
            "line 2, column 12: forward[0].coalesce: time is missing, such as time = \"50us\"",
        ),
        ("coalesce = \"2s\"", "line 2, column 12: forward[0].coalesce: time `2s`: from 1ns to 1s"),
        (
            "name = \"a.b\"",
            "line 2, column 8: forward[0].name: `a.b`: 1 to 32 letters, digits, `-` or `_`, not `-` first",
        ),
        ("name = \"hop2\"", "line 2, column 8: forward[0].name: `hop2`: means something else already"),
        ("name = \"client\"", "forward[0].name: `client`: a host has this name"),
        ("name = \"x\"\n[[forward]]\nname = \"x\"", "forward[1].name: `x`: another hop has this name"),
        ("[[client]]\nmtu = 67", "line 3, column 7: client[0].mtu: `67`: from 68 to 65535"),
        ("[[client]]\nname = \"x\"\n[[server]]\nname = \"x\"", "name: `x`: two hosts have this name"),
    ] {
        assert_eq!(refusal(&format!("[[forward]]\n{line}\n")), want, "{line}");
    }
    assert_eq!(refusal("forward = 5"), "line 1, column 11: forward: use [[forward]] tables");
    assert_eq!(refusal("name = \"a\\nb\""), "name: `a\\nb`: one line of at most 1000 characters");
    assert_eq!(refusal(&"[[forward]]\n".repeat(65)), "line 1, column 1: forward: 65 of them, at most 64");
    assert_eq!(refusal(&format!("{}[[both]]", "[[forward]]\n".repeat(64))), "forward: 65 hops, at most 64");
    // A few bytes must not take all memory, neither when they are read nor for each packet.
    let copying = "[[both]]\nduplicate = \"100%\"\n";
    assert!(PathSpec::parse(&copying.repeat(4), &no_files).is_ok());
    let many = "forward[4].duplicate: this hop and those before it turn one packet into 32, at most 16";
    assert_eq!(refusal(&copying.repeat(40)), many);
    let listed = "[[forward]]\nloss = { list = [\"1-4000000\"] }\n";
    assert_eq!(
        refusal(&listed.repeat(64)),
        "line 6, column 8: forward[2].loss: the lists of a path have at most 10000000 packets together"
    );
    assert_eq!(refusal(&"[[server]]\n".repeat(65)), "line 1, column 1: server: 65 of them, at most 64");
    // Nor when they name tables of tables.
    assert_eq!(
        refusal(&"a.b.b.b.b.b.b.b.b = 1\n".repeat(50_000)),
        "line 9844, column 16: more tables, lists and dots in keys than a file of this length has"
    );
}

/// As many outages as a path may have, each as short as it gets.
#[test]
fn many_short_tables_are_read() {
    let outages = "{at=\"1s\",for=\"1s\"},".repeat(1_000);
    let path = parse(&format!("[[forward]]\noutages=[{outages}]\n").repeat(10)).unwrap();
    assert_eq!((path.forward.len(), path.forward[9].outages.len()), (10, 1_000));
    assert_eq!(parse(&path.to_toml()).unwrap(), path);
}

/// Each series of an experiment has a copy of them.
#[test]
fn the_outages_and_delay_steps_of_a_path_are_bounded_together() {
    let thousand = ["0s,1s"; 1_000].join(";");
    let outages = format!("outages = \"{thousand}\"\n");
    let steps = format!("delay-steps = \"{}\"\n", ["0s,0s"; 1_000].join(";"));
    let delays = format!("delay-steps = \"random(1s{})\"\n", ",0s".repeat(1_000));
    for text in [
        format!("[[forward]]\n{outages}").repeat(10),
        format!("[[backward]]\n{outages}{steps}").repeat(5),
        format!("[[both]]\n{delays}").repeat(5),
    ] {
        assert!(parse(&text).is_ok());
    }
    for (text, hop, have) in [
        (format!("[[forward]]\n{outages}").repeat(11), "forward[10]", 11_000),
        (format!("[[backward]]\n{outages}{steps}").repeat(64), "backward[5]", 12_000),
        (format!("[[both]]\n{delays}").repeat(6), "backward[4]", 11_000),
    ] {
        let why = format!("this hop and those before have {have} outages and delay steps, at most 10000");
        assert_eq!(refusal(&text), format!("{hop}: {why}"));
    }
    // Changes make no more of them.
    let mut path = parse(&"[[both]]\n".repeat(6)).unwrap();
    let change = |hop: usize| Change::parse(&format!("hop{hop}.outages={thousand}")).unwrap();
    assert!(Change::apply(&[1, 2, 3, 4, 5].map(change), &mut path).is_ok());
    let refused = Change::apply(&[change(6)], &mut path).unwrap_err().to_string();
    assert!(refused.contains("have 11000 outages and delay steps"), "{refused}");
}

/// A short file may name one long table in each hop: each is kept and written for itself.
#[test]
fn the_tables_of_a_path_are_bounded_together() {
    let read = |text: &str| PathSpec::parse(text, &|_| Ok("1 ".repeat(1 << 16)));
    let hop = |of: &str| format!("[[{of}]]\njitter = {{ law = \"table\", stddev = \"1ns\", file = \"t.dist\" }}\n");
    assert!(read(&[hop("forward"), hop("backward")].concat().repeat(2)).is_ok());
    let mut path = read(&hop("both").repeat(2)).unwrap();
    for (text, place) in [
        (hop("forward").repeat(64), "line 10, column 10: forward[4].jitter"),
        (hop("both").repeat(64), "line 6, column 10: both[2].jitter"),
        ([hop("both").repeat(2), hop("backward")].concat(), "line 6, column 10: backward[0].jitter"),
    ] {
        let why = "the tables of both directions have at most 262144 values together";
        assert_eq!(read(&text).unwrap_err().to_string(), format!("{place}: {why}"));
    }
    // A change may leave a `[[both]]` hop in two directions that differ.
    path.forward[0].delay = Nanos(5);
    assert_eq!(parse(&path.to_toml()).unwrap(), path);
}

#[test]
fn what_is_no_toml_is_one_line_with_its_place() {
    for (text, place) in
        [("a = ", "line 1, column 5: "), ("[[forward]]\nrate = \"\n", "line 2, column "), ("\u{0}", "line 1")]
    {
        let message = refusal(text);
        assert!(message.starts_with(place), "{message}");
    }
    // Deep nesting must not end the stack.
    let message = refusal(&format!("a = {}", "[".repeat(100_000)));
    assert!(message.len() < 600, "{message}");
}

#[test]
fn files_are_read_beside_the_path_file_only() {
    let folder = std::env::temp_dir().join(format!("longhaul-path-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("lists")).unwrap();
    std::fs::write(folder.join("lists/drops.txt"), "7\n").unwrap();
    let path = folder.join("mine.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        PathSpec::load(&path)
    };
    let spec = load("[[both]]\nloss = { list = \"lists/drops.txt\" }").unwrap();
    assert_eq!((spec.name.as_str(), &spec.backward[0].loss), ("mine", &LossSpec::List([7].into())));

    let refusal = |text: &str| load(text).unwrap_err().to_string();
    let shown = path.display();
    std::os::unix::fs::symlink("/proc/version", folder.join("out")).unwrap();
    std::os::unix::fs::symlink("lists/drops.txt", folder.join("in")).unwrap();
    assert!(load("[[both]]\nloss = { list = \"in\" }").is_ok());
    for name in ["/etc/shadow", "../x", "lists/../../x", "", "out"] {
        let message = refusal(&format!("[[both]]\nloss = {{ list = \"{name}\" }}"));
        let want = "name a file in the folder of the path file or below it";
        assert_eq!(message, format!("{shown}:2:17: both[0].loss.list: `{name}`: {want}"));
    }
    assert!(refusal("[[both]]\nloss = { list = \"lists\" }").ends_with("`lists`: not a regular file"));
    assert_eq!(refusal(&"#".repeat((1 << 20) + 1)), format!("{shown}: longer than 1048576 bytes"));
    // A comment of holes, so large that a path can have it once.
    std::fs::write(folder.join("large"), "#").unwrap();
    std::fs::OpenOptions::new().append(true).open(folder.join("large")).unwrap().set_len(70 << 20).unwrap();
    let large = "[[forward]]\nloss = { list = \"large\" }\n";
    assert!(load(large).is_ok());
    let want = "`large`: the files that a path names are longer than 134217728 bytes together";
    assert_eq!(refusal(&large.repeat(2)), format!("{shown}:4:17: forward[1].loss.list: {want}"));
    assert!(PathSpec::load(&folder).unwrap_err().to_string().ends_with(": not a regular file"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn delays_rates_and_access() {
    let spec = parse(
        r#"
        [[forward]]
        rate = "9.28Gbit"
        delay = "200ms"
        [[forward]]
        rate = "1Gbit"
        delay = "50ms"
        [[backward]]
        delay = "250ms"
        [[client]]
        [[client]]
        name = "fast"
        rate = "100Gbit"
        "#,
    )
    .unwrap();
    assert_eq!(spec.one_way_delay(Direction::Forward), Nanos::from_millis(250));
    assert_eq!(spec.round_trip(), Nanos::from_millis(500));
    assert_eq!(spec.bottleneck(Direction::Forward), Some(BitRate::from_gbit(1)));
    assert_eq!(spec.bottleneck(Direction::Backward), None);
    assert_eq!(spec.host_names(PathEnd::Client), ["client1", "fast"]);
    assert_eq!(spec.host_names(PathEnd::Server), ["server"]);
    let speeds: Vec<_> = spec.clients.iter().map(|host| spec.access_rate(host)).collect();
    assert_eq!(speeds, [Some(BitRate::from_gbit(25)), Some(BitRate::from_gbit(100))]);
    assert_eq!(PathSpec::default().access_rate(&HostSpec::default()), None);
    for (hop_gbit, access_gbit) in [(1, 10), (5, 10), (10, 25), (100, 200), (200, 400), (400, 800)] {
        let hop = HopSpec { rate: Some(BitRate::from_gbit(hop_gbit)), ..HopSpec::default() };
        let spec = PathSpec { backward: vec![hop], ..PathSpec::default() };
        assert_eq!(spec.access_rate(&HostSpec::default()), Some(BitRate::from_gbit(access_gbit)));
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_is_written_reads_back(spec in crate::common::any_path()) {
            let text = spec.to_toml();
            let read = PathSpec::parse(&text, &no_files).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, spec, "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }

        /// Near what is right: the characters and words of path files, shuffled.
        #[test]
        fn no_mutation_panics(spec in crate::common::any_path(), cuts in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-z\\[\\]{}\"=.,%( )\n]{0,4}"), 1..6)) {
            let mut text: Vec<char> = spec.to_toml().chars().collect();
            for (at, put) in cuts {
                let at = at.index(text.len() + 1);
                let end = (at + put.chars().count() / 2).min(text.len());
                text.splice(at..end, put.chars());
            }
            let text: String = text.into_iter().collect();
            if let Err(error) = parse(&text) {
                prop_assert!(!error.to_string().contains('\n'), "{}", error);
            }
        }

        #[test]
        fn no_value_panics(key in prop::sample::select(Key::ALL.to_vec()), value in "[-0-9a-zG%.,()]{0,16}") {
            let _ = Change::parse(&format!("{}={value}", key.name()));
            let _ = parse(&format!("[[forward]]\n{} = \"{value}\"", key.name()));
        }
    }
}
