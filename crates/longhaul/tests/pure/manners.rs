//! What every command does alike: widths, letters, files that are there, words that shells complete.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::common::captures::Folder;
use crate::common::{longhaul, object, printed, root};

/// The binary in a terminal of this width, or none, with this in its environment.
fn with(environment: &[(&str, &str)], arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(arguments)
        .env_remove("COLUMNS")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Help follows the width, up to 100 columns where lines are still read well; results are never cut.
#[test]
fn widths_and_locales() {
    let mut help = String::new();
    for width in ["60", "80", "200"] {
        let text = with(&[("COLUMNS", width), ("NO_COLOR", "1")], &["cc", "use", "--help"]);
        let _ = writeln!(help, "=== {width} columns\n{text}");
        let widest =
            text.lines().take_while(|line| !line.starts_with("Example")).map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= width.parse::<usize>().unwrap().min(100), "{width}: {text}");
    }
    insta::assert_snapshot!(help);

    let file = root().join("crates/longhaul/tests/udp-result.json");
    let show = ["show", file.to_str().unwrap()];
    let piped = with(&[], &show);
    for environment in [&[("COLUMNS", "60")][..], &[("COLUMNS", "200")], &[("NO_COLOR", "1")], &[("LC_ALL", "C.UTF-8")]]
    {
        assert_eq!(with(environment, &show), piped, "{environment:?}");
    }
    assert!(piped.contains('█') && !piped.contains('\u{1b}'), "{piped}");
    let ascii = with(&[("LC_ALL", "C")], &show);
    assert!(ascii.is_ascii(), "{ascii}");
    insta::assert_snapshot!("ascii", ascii);
}

/// Ping of a path of 20 ms and some.
fn pings() -> String {
    let mut text = String::from("PING far (192.0.2.1) 56(84) bytes of data.\n");
    for number in 1..=400 {
        let _ = writeln!(text, "64 bytes from 192.0.2.1: icmp_seq={number} ttl=64 time=20.{} ms", number * 7 % 10);
    }
    text + "\n--- far ping statistics ---\n400 packets transmitted, 400 received, 0% packet loss, time 399000ms\n"
}

/// An hour of a test is not lost for the folder of its page.
#[test]
fn a_page_without_its_folder_is_told_before_anything_is_measured() {
    for command in ["udp", "tcp", "rtt", "diagnose"] {
        let output = longhaul(&[command, "127.0.0.1", "-p", "9", "--html", "/nowhere/page.html"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("/nowhere/page.html") && said.contains("No such file"), "{command}: {said}");
    }
}

#[test]
fn what_is_there_is_replaced_by_force_alone() {
    let folder = Folder::new("force");
    let (measured, made) = (folder.file("far.txt"), folder.file("far.toml"));
    fs::write(&measured, pings()).unwrap();
    fs::write(&made, "mine").unwrap();
    let refused = longhaul(&["profile", &measured, "-o", &made]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("far.toml: the file is there already") && said.contains("--force"), "{said}");
    assert_eq!(fs::read_to_string(&made).unwrap(), "mine");
    printed(&["profile", &measured, "-o", &made, "--force"]);
    assert!(fs::read_to_string(&made).unwrap().contains("delay"));
    // A device has nothing to lose.
    printed(&["profile", &measured, "-o", "/dev/null"]);
}

/// A result is not lost to a test that never began, nor are figures of a file that was never written.
#[test]
fn what_was_measured_stays_until_there_is_something_new() {
    let folder = Folder::new("kept");
    let (kept, figures) = (folder.file("kept"), folder.file("kept.prom"));
    fs::create_dir(&kept).unwrap();
    let old = ["result.json", "losses.parquet", "samples.parquet", "mine.parquet"];
    let there = || old.map(|name| fs::read_to_string(format!("{kept}/{name}")).ok());
    // A result names its tables.
    let text = r#"{"losses_file":"losses.parquet","samples_file":"samples.parquet"}"#;
    for name in old {
        fs::write(format!("{kept}/{name}"), text).unwrap();
    }
    fs::write(&figures, "old").unwrap();
    // Nobody answers there: nothing listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    for command in ["udp", "tcp"] {
        let words = [command, "127.0.0.1", "-p", &port, "-t", "1s", "-o", &kept, "--force", "--prometheus", &figures];
        let failed = longhaul(&words);
        assert!(!failed.status.success(), "{failed:?}");
        assert_eq!(there(), old.map(|_| Some(text.to_owned())), "{command}");
        assert_eq!(fs::read_to_string(&figures).unwrap(), "old", "{command}");
    }
    let refused = longhaul(&["lab", "run", "nlr-tcp", "--only", "no such series", "-o", &kept, "--force"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(there(), old.map(|_| Some(text.to_owned())), "{refused:?}");
    // What is new takes the place of all that belongs to the old one, and of nothing else.
    let empty = folder.file("empty.pcap");
    fs::write(&empty, [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]].concat())
        .unwrap();
    printed(&["analyze", &empty, "-o", &kept, "--force"]);
    let [result, losses, samples, mine] = there();
    assert!(result.unwrap().contains("longhaul.analyze"));
    assert_eq!((losses, samples, mine.as_deref()), (None, None, Some(text)));
}

/// Two commands that measure into one folder would overwrite each other's runs and segments.
#[test]
fn a_folder_that_another_command_writes_to_is_refused_before_anything_is_measured() {
    let folder = Folder::new("in-use");
    let (used, capture) = (folder.file("used"), root().join("fuzz/corpus/header_log/tcp_and_udp"));
    fs::create_dir(&used).unwrap();
    // As a command holds it.
    let other = fs::File::open(&used).unwrap();
    other.lock().unwrap();
    for command in [
        &["rtt", "127.0.0.1", "--icmp", "-o", &used][..],
        &["rtt", "127.0.0.1", "--icmp", "-o", &used, "--force"],
        &["rtt", "127.0.0.1", "--resume", &used],
        &["analyze", capture.to_str().unwrap(), "-o", &used],
        &["lab", "run", "nlr-tcp", "-o", &used],
        &["lab", "run", "nlr-tcp", "-o", &used, "--resume"],
        &["lab", "run", "nima", "-o", &used],
        &["lab", "run", "faults", "-o", &used],
    ] {
        let output = longhaul(command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        let told = [&used[..], "another command writes its result into this folder", "wait until it has ended"];
        assert!(told.iter().all(|one| said.contains(one)), "{command:?}: {said}");
    }
    assert_eq!(fs::read_dir(&used).unwrap().count(), 0);
}

/// The table has its name before the result has: what goes for the new one goes before both. What `convert` wrote there is no part of it.
#[test]
fn a_result_that_is_replaced_has_a_table_again() {
    let folder = Folder::new("tables");
    let capture = root().join("fuzz/corpus/header_log/tcp_and_udp");
    let capture = capture.to_str().unwrap();
    for (words, table) in
        [(&["analyze", capture][..], "series.parquet"), (&["compare", capture, capture], "delays.parquet")]
    {
        let kept = folder.file(words[0]);
        for force in [&[][..], &["--force"]] {
            printed(&[words, &["-o", &kept], force].concat());
            for name in [table, "result.json"] {
                assert!(fs::metadata(format!("{kept}/{name}")).is_ok(), "{name} of {words:?} {force:?}");
            }
        }
        let packets = format!("{kept}/packets.parquet");
        printed(&["convert", capture, &packets]);
        printed(&[words, &["-o", &kept, "--force"]].concat());
        assert!(fs::metadata(&packets).is_ok() && fs::metadata(format!("{kept}/{table}")).is_ok(), "{words:?}");
    }
}

/// A folder in the place of a table of before cannot be removed.
#[test]
fn a_comparison_that_cannot_be_saved_is_printed_alone() {
    let folder = Folder::new("unsaved");
    let (kept, watched) = (folder.file("kept"), folder.file("watched.json"));
    fs::create_dir_all(format!("{kept}/samples.parquet")).unwrap();
    fs::write(format!("{kept}/result.json"), r#"{"samples_file":"samples.parquet"}"#).unwrap();
    let result = r#"{"duration_ns":1,"location_method":"counters","sockets":[],"sockets_not_followed":0,
        "uncounted_packets":0,"counters":{}}"#;
    let of_watch = format!(r#"{{"schema":"longhaul.watch.udp/1","parameters":{{}},"result":{result},"caveats":[]}}"#);
    fs::write(&watched, of_watch).unwrap();
    let output = longhaul(&["compare", &watched, &watched, "-J", "-o", &kept, "--force"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(object(&output.stdout)["schema"], "longhaul.compare.udp/1", "{said}");
    assert!(said.contains("the result is not saved"), "{said}");
}

/// Each way to keep packets is told, not one of them; and the key that was meant.
#[test]
fn what_is_missing_or_misspelt_is_told_with_what_may_be_there() {
    for (words, told) in [
        (&["capture", "lo"][..], &["--output", "--write", "--to"][..]),
        (&["lab", "up", "lan", "--set", "forward.dealy=5ms"], &["did you mean delay?"]),
    ] {
        let output = longhaul(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(told.iter().all(|one| said.contains(one)), "{words:?}: {said}");
    }
}

#[test]
fn shells_complete_what_longhaul_knows() {
    let after = |words: &[&str]| printed(&[&["completion", "bash", "--"][..], words].concat());
    for (words, known) in [
        (&["lab", "up"][..], "nlr-small"),
        (&["lab", "up", "--mtu", "9000"], "nlr-small"),
        (&["paths", "show"], "tokyo"),
        (&["emulate", "--path"], "tokyo"),
        (&["capture"], "lo"),
        (&["capture", "-i"], "lo"),
        (&["capture", "-i"], "any"),
        (&["filter", "attach"], "lo"),
        (&["cc", "load"], "htcp"),
        (&["cc", "load", "htcp"], "scalable"),
        (&["cc", "use"], "cubic"),
        (&["tcp", "server", "-C"], "cubic"),
        (&["lab", "set"], "forward.loss="),
        (&["lab", "run"], "nlr-tcp"),
        (&["docs"], "udp-results"),
    ] {
        let said = after(words);
        assert!(said.lines().any(|word| word == known), "{words:?}: {said}");
    }
    for words in [&["udp"][..], &["lab", "up", "--set"], &["lab", "exec", "client", "--"], &["no", "such"]] {
        assert!(!after(words).contains("nlr-small"), "{words:?}");
    }
    // `--html` takes a file: the shell offers file names.
    let fish = printed(&["completion", "fish"]);
    let pages: Vec<&str> = fish.lines().filter(|line| line.contains(" -l html ")).collect();
    assert!(pages.len() >= 9 && pages.iter().all(|line| line.ends_with(" -r -F")), "{pages:#?}");
    let Ok(bash) = Command::new("bash")
        .args(["-c", "eval \"$(\"$0\" completion bash)\"; longhaul() { \"$LONGHAUL\" \"$@\"; }; \
            COMP_WORDS=(longhaul lab up nlr-s); COMP_CWORD=3; _longhaul_known longhaul nlr-s up; echo \"${COMPREPLY[@]}\"; \
            COMP_WORDS=(longhaul dia); COMP_CWORD=1; _longhaul_known longhaul dia longhaul; echo \"${COMPREPLY[@]}\"",
            env!("CARGO_BIN_EXE_longhaul")])
        .env("LONGHAUL", env!("CARGO_BIN_EXE_longhaul"))
        .output()
    else {
        return longhaul_testing::no_judge!("no bash");
    };
    assert_eq!(
        String::from_utf8(bash.stdout).unwrap(),
        "nlr-small\ndiagnose\n",
        "{:?}",
        String::from_utf8(bash.stderr)
    );
    // A name is never run, as who completes is root, and others name interfaces.
    let bash = Command::new("bash")
        .args([
            "-c",
            "eval \"$(\"$0\" completion bash)\"; longhaul() { echo 'x$(echo run >&2)'; }; \
            COMP_WORDS=(longhaul watch x); COMP_CWORD=2; _longhaul_known longhaul x watch; echo \"${COMPREPLY[@]}\"",
            env!("CARGO_BIN_EXE_longhaul"),
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(bash.stdout).unwrap(), "x\\$\\(echo\\ run\\ \\>\\&2\\)\n");
    assert!(bash.stderr.is_empty(), "{:?}", String::from_utf8(bash.stderr));
}

/// A result that standard output does not take is a failure; a line that standard error does not take is none.
#[test]
fn a_full_disk_below_the_output() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for command in [&["paths"][..], &["host", "--json"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_longhaul")).args(command).stdout(full()).output().unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.starts_with("longhaul: standard output: No space left on device"), "{said}");
    }
    let wrong = Command::new(env!("CARGO_BIN_EXE_longhaul")).arg("lisst").stderr(full()).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn help_names_pages_that_the_binary_has() {
    for command in crate::common::commands() {
        let help = crate::common::help(&command);
        assert!(!help.contains("docs/") && !help.contains(".md"), "{command:?} cites a file of the repository: {help}");
        for cited in help.split("longhaul docs ").skip(1) {
            let topic: String =
                cited.chars().take_while(|letter| letter.is_ascii_lowercase() || *letter == '-').collect();
            if !topic.is_empty() {
                printed(&["docs", &topic]);
            }
        }
    }
    assert!(printed(&["docs"]).lines().any(|line| line.starts_with("udp-results")));
    let slip = String::from_utf8(longhaul(&["docs", "udp-result"]).stderr).unwrap();
    assert!(slip.contains("did you mean udp-results?"), "{slip}");
}

#[test]
fn man_pages_make_their_folder() {
    let folder = Folder::new("man");
    printed(&["man", &folder.file("share/man/man1")]);
    assert!(fs::metadata(folder.file("share/man/man1/longhaul.1")).is_ok());
}

/// Times that iperf3 and ping take as seconds, and those that may be milliseconds; units of other tools; limits as they were asked.
#[test]
fn units_as_people_type_them() {
    for (arguments, named) in [
        (&["cc", "table", "--rtt", "200"][..], "200ms or 200s?"),
        (&["tune", "--rate", "1G", "--rtt", "200"], "200ms or 200s?"),
        (&["lab", "up", "lan", "--set", "delay=5"], "5ms or 5s?"),
        (&["udp", "::1", "--spacing", "10"], "10ms or 10s?"),
        (&["tcp", "::1", "-C", "cubic:2,reno:2"], "2ms or 2s?"),
        (&["udp", "::1", "-w", "5G"], "-w 5GiB: 2K to 2G"),
        (&["tcp", "::1", "-l", "20M"], "-l 20MiB: 1 to 16M"),
    ] {
        let output = longhaul(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    for arguments in [
        &["udp", "::1", "-p", "1", "-b", "1Gbps", "-t", "2sec", "-l", "1K"][..],
        &["udp", "::1", "-p", "1", "-b", "500Mbps", "-k", "1k"],
        &["rtt", "::1", "-p", "1", "-i", "0.1", "-c", "1k", "-l", "1K"],
        &["tcp", "::1", "-p", "1", "-t", "10", "-i", "1"],
    ] {
        let output = longhaul(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cannot connect") && !said.contains("os error"), "{arguments:?}: {said}");
    }
}
