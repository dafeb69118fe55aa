//! Whole commands on arbitrary bytes: what a user runs on a file that somebody sent, up to the last line that is printed.
//!
//! A command ends with a result or one line that says why there is none, and prints nothing that a terminal obeys. Whoever runs
//! these bounds their time and memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use longhaul_captures::spool::{EXTENSION, MAGIC};
use longhaul_report::html::over_time::udp::Departures;
use longhaul_report::text;
use longhaul_rtt::{ClockState, Counts, caveats_of};
use longhaul_session::{EndReport, TestEnd, TestParameters, kind};
use longhaul_tcp::TcpParameters;
use longhaul_terms::TestDirection;
use longhaul_udp::{UdpParameters, attribution};
use longhaul_units::is_obeyed;

use super::sealed;

/// Two files in one input: this, and the length of the first (four bytes, LE).
const TWO: &[u8] = b"TWO\n";

/// A folder in memory, for the input and for what is made of it.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PathBuf::from(format!("/dev/shm/longhaul-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder in memory");
    folder
});

fn path(name: &str) -> String {
    FOLDER.join(name).to_str().expect("a name of ours").to_owned()
}

fn file(name: &str, bytes: &[u8]) -> String {
    fs::write(FOLDER.join(name), bytes).expect("memory");
    path(name)
}

/// Runs `longhaul` with `arguments` in this process, and judges what it printed, which it gives.
fn run(arguments: &[&str]) -> String {
    let arguments: Vec<OsString> = ["longhaul"].iter().chain(arguments).map(OsString::from).collect();
    let mut printed = File::options().read(true).write(true).create(true).truncate(true).open(FOLDER.join("printed"));
    let printed = printed.as_mut().expect("memory");
    // The descriptors of the process, as commands write to them wherever they are.
    let own =
        [rustix::io::dup(std::io::stdout()), rustix::io::dup(std::io::stderr())].map(|fd| fd.expect("a descriptor"));
    let _ = rustix::stdio::dup2_stdout(&printed);
    let _ = rustix::stdio::dup2_stderr(&printed);
    let ran = catch_unwind(AssertUnwindSafe(|| longhaul::run(arguments.clone())));
    let _ = std::io::stdout().flush();
    let _ = rustix::stdio::dup2_stdout(&own[0]);
    let _ = rustix::stdio::dup2_stderr(&own[1]);
    let mut bytes = Vec::new();
    let _ = printed.rewind().and_then(|()| printed.read_to_end(&mut bytes));
    let text = String::from_utf8(bytes).expect("UTF-8");
    if let Err(panic) = ran {
        eprintln!("{arguments:?}: {}", text.escape_debug());
        resume_unwind(panic);
    }
    assert!(!text.is_empty(), "{arguments:?} says nothing");
    assert!(!text.contains(|letter: char| is_obeyed(letter) && letter != '\n'), "{arguments:?}: {text:?}");
    // As text, a name of others may begin a line.
    let is_json = arguments.iter().any(|argument| argument == "--json");
    for line in text.lines().filter(|line| is_json && line.starts_with('{')) {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    }
    text
}

/// A file for `longhaul analyze`, with all that it can be asked for, and for `longhaul diagnose trace`.
pub fn analyze(input: &[u8]) {
    let (capture, series) = (file("input", &sealed(input)), path("series"));
    let _ = fs::remove_dir_all(&series);
    run(&["analyze", "--json", "--top", "0", "--force", "--html", &path("page.html"), "-o", &series, &capture]);
    run(&["analyze", &capture]);
    run(&["diagnose", "trace", "--top", "0", &capture]);
}

/// One file or two for `longhaul compare`: captures at two points and of two runs, which `longhaul profile` reads as well, or results of
/// `longhaul watch --udp`.
pub fn compare(input: &[u8]) {
    let two = input.strip_prefix(TWO).and_then(|rest| {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        rest.split_at_checked(u32::from_le_bytes(*length) as usize)
    });
    let (a, b) = two.unwrap_or((input, input));
    if a.starts_with(b"{") && b.starts_with(b"{") {
        let (a, b) = (file("a.json", a), file("b.json", b));
        run(&["compare", &a, &b]);
        run(&["compare", "--json", &a, &b]);
        return;
    }
    let (a, b, delays) = (file("a", &sealed(a)), file("b", &sealed(b)), path("delays"));
    let _ = fs::remove_dir_all(&delays);
    run(&["compare", "--json", "--force", "--html", &path("page.html"), "-o", &delays, &a, &b]);
    run(&["compare", "--behaviour", &a, &b]);
    run(&["profile", &a, &b]);
    run(&["profile", "--json", &a]);
}

/// Samples of `longhaul tcp -o`, probes of `longhaul rtt -o` and the output of ping for `longhaul profile`, the latter two for `longhaul verify`.
pub fn profile(input: &[u8]) {
    for (folder, name) in [("tcp", "samples.parquet"), ("rtt", "probes-00000.parquet")] {
        let folder = path(folder);
        fs::create_dir_all(&folder).expect("memory");
        fs::write(Path::new(&folder).join(name), input).expect("memory");
        run(&["profile", &folder]);
    }
    let ping = file("ping", input);
    run(&["profile", &ping]);
    for measured in [ping, path("rtt")] {
        run(&["verify", "lan", "--against", &measured]);
    }
}

/// A file for `longhaul convert`, to each form; and as a file of a spool, whose folder is read otherwise.
pub fn convert(input: &[u8]) {
    let sealed = sealed(input);
    let (capture, log) = (file("input", &sealed), path("log.parquet"));
    let _ = fs::remove_file(&log);
    run(&["convert", "--force", "--keep-snippets", &capture, &log]);
    for to in ["packets.pcapng", "packets.pcap.zst"] {
        run(&["convert", "--force", if Path::new(&log).exists() { &log } else { &capture }, &path(to)]);
    }
    if sealed.starts_with(&MAGIC) {
        let spool = path("spool");
        fs::create_dir_all(&spool).expect("memory");
        fs::write(Path::new(&spool).join("00000001").with_extension(EXTENSION), &sealed).expect("memory");
        let said = run(&["convert", "--force", "--json", &spool, &log]);
        assert!(!said.contains("there is no capture in this folder"), "{said}");
    }
}

/// A file for `longhaul show`, and for a plan of `longhaul tune`.
pub fn show(input: &[u8]) {
    let saved = file("result.json", input);
    run(&["show", &saved]);
    run(&["show", "--json", &saved]);
    run(&["show", "--force", "--html", &path("page.html"), &saved]);
    run(&["tune", &saved]);
}

/// A file for `longhaul report`: in its folder, as a page, and beside itself.
pub fn report(input: &[u8]) {
    let saved = file("result.json", input);
    run(&["report", &path("")]);
    run(&["report", "--force", "--html", &path("page.html"), &saved]);
    run(&["report", "--markdown", &saved, &saved]);
}

/// A path file, as `longhaul paths show` and `emulate` read it.
pub fn paths_show(input: &[u8]) {
    let file = file("path.toml", input);
    run(&["paths", "show", &file]);
    run(&["paths", "show", "--json", &file]);
}

/// A result for `longhaul cc table --measured`. Rows of cubic, which are printed beside it, take no time.
pub fn cc_table(input: &[u8]) {
    let saved = file("result.json", input);
    let table = ["cc", "table", "--algorithm", "cubic", "--measured", &saved];
    run(&table);
    run(&[&table[..], &["--json"]].concat());
}

/// The other end's report, as the client makes a result of it and prints that.
pub fn peer_report(input: &[u8]) {
    let Ok(remote) = serde_json::from_slice::<EndReport>(input) else { return };
    if let Some(before) = &remote.rtt {
        // As where a second session follows the first.
        let mut rtt = before.clone();
        rtt.add(before);
        printable(&rtt.clock.clone().map(ClockState::of_peer), &caveats_of(&Counts::default(), 0, Some(&rtt)));
    }
    // Either end may be the sender, so that the report is tried as both.
    let ends = [(remote.clone(), EndReport::default()), (remote.clone(), remote)];
    for (remote, local) in ends {
        for direction in [TestDirection::Forward, TestDirection::Reverse, TestDirection::Bidirectional] {
            let end = |parameters: TestParameters| TestEnd {
                parameters,
                local: with_both(&local),
                remote: Some(remote.clone()),
                caveats: Vec::new(),
                cut: None,
                stopped_by_server: false,
                ended_by_server: false,
                fell_short: None,
            };
            let udp = UdpParameters { direction, ..UdpParameters::default() };
            let mut save = |ending: &str, losses: &mut dyn Iterator<Item = longhaul_udp::locate::Loss>| {
                Ok(format!("{} losses{ending}", losses.count()))
            };
            let tested = end(udp.clone().into());
            if let Some((results, caveats)) = kind::udp::results(&tested, Some(&mut save)) {
                printable(&results, &caveats);
                text::udp::report(&udp, &results);
            }
            // What a page draws.
            for (sender, receiver) in [false, true].into_iter().filter_map(|backward| tested.udp_reports(backward)) {
                let Some(mut departures) = Departures::of(&sender.streams) else { continue };
                attribution(sender, receiver).losses().for_each(|loss| departures.lose(&loss));
            }
            let tcp = TcpParameters { direction, ..TcpParameters::default() };
            if let Some((results, caveats)) = kind::tcp::results(&end(tcp.clone().into()), false) {
                printable(&results, &caveats);
                text::tcp::report(&tcp, &results);
            }
        }
    }
}

/// This end's report: where the other end's is not tried for it, one that sent and received nothing.
fn with_both(local: &EndReport) -> EndReport {
    let mut local = local.clone();
    let udp = local.udp.get_or_insert_default();
    udp.sender.get_or_insert_default();
    udp.receiver.get_or_insert_default();
    local.tcp.get_or_insert_default();
    local
}

fn printable(results: &impl serde::Serialize, caveats: &[longhaul_result::Caveat]) {
    serde_json::to_string(results).expect("results can be written");
    serde_json::to_string(caveats).expect("caveats can be written");
}
