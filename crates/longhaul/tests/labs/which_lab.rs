//! Which lab a command means, how it looks inside, and that ending one waits for nobody.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;
use serde_json::json;

use crate::common::{TestLab, longhaul, object, printed};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The binary where `LONGHAUL_LAB` names a lab.
fn with_lab(lab: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).args(arguments).env("LONGHAUL_LAB", lab).output().unwrap()
}

#[test]
fn a_program_needs_no_dashes_before_it() {
    let Some(lab) = TestLab::up("dashes", "lan") else { return };
    let ping = longhaul(&["lab", "exec", "client", "--name", &lab.name, "ping", "-c", "1", "-W", "5", "server"]);
    assert!(ping.status.success() && text(&ping).contains("1 received"), "{}", text(&ping));
    // What follows the program is the program's, also what looks like ours.
    for dashes in [&[][..], &["--"]] {
        let program = ["sh", "-c", "echo \"$@\"", "sh", "--name", "x", "--", "-J"];
        let echo = longhaul(&[&["lab", "exec", "--name", &lab.name, "server"], dashes, &program].concat());
        assert_eq!(text(&echo), "--name x -- -J\n");
    }
    // So an error is no JSON on the program's stdout.
    let wrong = longhaul(&["lab", "exec", "--name", &lab.name, "nobody", "iperf3", "-J"]);
    assert_eq!((wrong.status.code(), wrong.stdout.len()), (Some(2), 0), "{}", text(&wrong));
}

#[test]
fn the_environment_names_the_lab() {
    let Some(first) = TestLab::up("named-first", "lan") else { return };
    let Some(second) = TestLab::up("named-second", "nlr-tiny") else { return };
    let status = with_lab(&second.name, &["lab", "status"]);
    assert!(text(&status).contains("forward.ring"), "{}", text(&status));
    let other = with_lab(&second.name, &["lab", "status", "--name", &first.name]);
    assert!(text(&other).contains("forward.switch"), "--name goes before it: {}", text(&other));
    let inside = with_lab(&second.name, &["lab", "exec", "client", "sh", "-c", "echo $LONGHAUL_LAB"]);
    assert_eq!(text(&inside), format!("{}\n", second.name));
    let none = with_lab("nowhere", &["lab", "status"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none).contains("LONGHAUL_LAB") && text(&none).contains("unset"), "{}", text(&none));
    let down = with_lab(&second.name, &["lab", "down"]);
    assert!(down.status.success(), "{}", text(&down));
    let list = printed(&["lab", "list"]);
    assert!(!list.contains(&second.name) && list.contains(&first.name), "{list}");
    let third = TestLab { name: format!("named-third-{}", std::process::id()) };
    assert!(with_lab(&third.name, &["lab", "up", "lan"]).status.success());
    assert!(printed(&["lab", "list"]).contains(&third.name));
}

/// A program on a host reaches the lab that it is in, and its other hosts.
#[test]
fn a_host_knows_its_lab() {
    let Some(lab) = TestLab::up("inside", "nlr-tiny") else { return };
    let Some(_other) = TestLab::up("inside-other", "lan") else { return };
    let script = "longhaul=$0; $longhaul lab list; $longhaul lab set delay=2ms; $longhaul lab status; \
        $longhaul lab exec server sh -c 'echo on $LONGHAUL_HOST'";
    let program = ["sh", "-c", script, env!("CARGO_BIN_EXE_longhaul")];
    let inside = longhaul(&[&["lab", "exec", "--name", &lab.name, "client"], &program[..]].concat());
    let said = text(&inside);
    assert!(inside.status.success() && said.ends_with("on server\n"), "{said}");
    assert!(said.starts_with(&lab.name) && said.contains("forward.ring                  2ms"), "{said}");
    assert!(!said.contains("inside-other"), "it sees its own alone: {said}");
}

/// Who names a lab in their shell is not on a host of it: `serve` trusts nobody for that.
#[test]
fn a_name_in_the_environment_opens_no_server() {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    serve.args(["serve", "--port", "0"]).env("LONGHAUL_LAB", "mine").env_remove("LONGHAUL_HOST").stderr(Stdio::piped());
    let mut serve = Program(serve.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(serve.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("127.0.0.1:"), "{line}");
}

/// What `lab shell client` shows at a terminal of its own, where `typed` is typed.
fn at_a_terminal(lab: &str, shell: &str, typed: &str) -> Option<String> {
    let command = format!("{} lab shell --name {lab} client", env!("CARGO_BIN_EXE_longhaul"));
    let mut script = Command::new("script");
    script.args(["-qc", &command, "/dev/null"]).env("SHELL", shell).env_remove("PS1");
    let Ok(mut script) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        longhaul_testing::no_judge!("needs script (bsdutils)");
        return None;
    };
    script.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = script.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_shell_shows_its_host() {
    let Some(lab) = TestLab::up("shell", "lan") else { return };
    for shell in ["/bin/bash", "/bin/sh"] {
        if !fs::exists(shell).unwrap() {
            longhaul_testing::no_judge!("needs {shell}");
            continue;
        }
        let Some(shown) = at_a_terminal(&lab.name, shell, "echo in:$LONGHAUL_LAB\nexit\n") else { return };
        assert!(shown.contains(&format!("(client@{}) ", lab.name)), "{shell}: {shown}");
        assert!(shown.contains(&format!("in:{}", lab.name)), "{shell}: {shown}");
    }
    // Without a terminal there is no prompt.
    let mut shell = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    shell.args(["lab", "shell", "--name", &lab.name, "client"]).env("SHELL", "/bin/sh");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(b"echo $LONGHAUL_HOST\n").unwrap();
    assert_eq!(text(&shell.wait_with_output().unwrap()), "client\n");
}

#[test]
fn status_shows_each_direction_as_it_is_now() {
    let Some(lab) = TestLab::up("links", "nlr-tiny") else { return };
    let changes =
        ["delay=30ms", "forward.loss=random(0.1%)", "backward.rate=1Gbit", "forward.queue=1000p", "client.rate=2Gbit"];
    let set = longhaul(&[&["lab", "set", "--name", &lab.name], &changes[..]].concat());
    assert!(set.status.success(), "{}", text(&set));
    let shown = printed(&["lab", "status", "--name", &lab.name]);
    let table: Vec<Vec<&str>> = (shown.lines().skip_while(|line| !line.starts_with("link now")))
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in [
        ["client.up", "0ns", "2Gbit", "unlimited", "none"],
        ["server.down", "0ns", "25Gbit", "unlimited", "none"],
        ["forward.ring", "30ms", "10Gbit", "1000p", "random(0.1%)"],
        ["backward.ring", "30ms", "1Gbit", "64MiB", "none"],
    ] {
        assert!(table.iter().any(|words| *words == row), "{row:?}: {shown}");
    }
    let status = object(&longhaul(&["lab", "status", "--name", &lab.name, "--json"]).stdout);
    let link = json!({
        "name": "forward.ring", "delay_ns": 30_000_000, "rate_bps": 10_000_000_000_u64, "loss": "random(0.1%)",
        "queue": "1000p", "others": [],
    });
    let links = status["parameters"]["links"].as_array().unwrap();
    assert!(links.contains(&link), "{links:?}");
}

/// A lab of 128 hosts needs seconds to come up. `lab down` waits for none of them.
#[test]
fn down_does_not_wait_for_an_up() {
    let file = std::env::temp_dir().join(format!("longhaul-many-{}.toml", std::process::id()));
    let hosts = "[[client]]\n[[server]]\n".repeat(64);
    fs::write(&file, format!("{hosts}[[both]]\nrate = '1Gbit'\ndelay = '1ms'\n")).unwrap();
    let lab = TestLab { name: format!("many-{}", std::process::id()) };
    let mut up = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    up.args(["lab", "up", file.to_str().unwrap(), "--name", &lab.name]).stderr(Stdio::piped());
    let mut up = up.spawn().unwrap();
    let coming_up = |list: &str| list.lines().any(|line| line.starts_with(&lab.name) && line.contains("coming up"));
    until("the lab to come up", || coming_up(&printed(&["lab", "list"])) || up.try_wait().unwrap().is_some());
    let began = Instant::now();
    let down = longhaul(&["lab", "down", "--name", &lab.name, "--json"]);
    let took = began.elapsed();
    let up = up.wait_with_output().unwrap();
    fs::remove_file(&file).unwrap();
    if text(&up).contains("user namespace") {
        longhaul_testing::no_judge!("{}", text(&up));
        return;
    }
    assert!(down.status.success(), "{}", text(&down));
    assert_eq!(object(&down.stdout)["result"]["interrupted"], json!([lab.name]), "{}", text(&down));
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(up.status.code(), Some(1), "{}", text(&up));
    assert!(text(&up).contains("was taken down while it was coming up"), "{}", text(&up));
    assert!(!printed(&["lab", "list"]).contains(&lab.name));
}
