//! A test that did not come to its end says so and fails, also where a server hides it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_kernel::tcp::set_reset_on_close;
use longhaul_tcp::proof::TCP_HELLO_BYTES;
use serde_json::{Value, json};

use crate::common::relay::relay;
use crate::common::{longhaul, object};
use crate::udp_refusals::Server;

/// How long a connection of data lasts.
const LASTS: Duration = Duration::from_millis(300);

/// A server, and the port of one that says what `change` makes of what it says.
fn hostile(change: impl Fn(Value) -> Vec<Value> + Clone + Send + 'static) -> (Server, String) {
    let server = Server::start(&["--no-auth"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    relay(listener, SocketAddr::from(([127, 0, 0, 1], server.port.parse().unwrap())), change);
    (server, port)
}

/// What a command prints that tests with the server at this port, and fails.
fn failed(command: &str, options: &[&str], port: &str) -> Value {
    let output = longhaul(&[&[command, "127.0.0.1", "-p", port, "--no-auth", "--json"], options].concat());
    assert_eq!(output.status.code(), Some(1), "{command} {options:?}: {output:?}");
    object(&output.stdout)
}

/// What the caveat of this code says.
fn caveat<'a>(found: &'a Value, code: &str) -> &'a str {
    let caveats = found["caveats"].as_array().unwrap_or_else(|| panic!("{found:#}"));
    let caveat = caveats.iter().find(|caveat| caveat["code"] == code);
    caveat.unwrap_or_else(|| panic!("no {code}: {caveats:?}"))["message"].as_str().unwrap()
}

#[test]
fn an_amount_that_takes_longer_than_the_server_allows_fails() {
    thread::scope(|scope| {
        for (command, rate) in [("udp", "-b"), ("tcp", "--pace")] {
            for direction in [&[][..], &["-R"]] {
                scope.spawn(move || {
                    let server = Server::start(&["--no-auth", "--time-cap", "300ms"]);
                    let options = [&[rate, "10M", "-n", "20M", "--collect", "off"], direction].concat();
                    let found = failed(command, &options, &server.port);
                    let why = caveat(&found, "sender_stopped");
                    assert!(why.contains("not all") && why.contains("allows 300ms"), "{command} {direction:?}: {why}");
                });
            }
        }
    });
}

/// Has the sender stop as soon as it sends.
fn stops(message: Value) -> Vec<Value> {
    if message["type"] != "data_proven" {
        return vec![message];
    }
    // By then the client knows that its connections are open.
    thread::sleep(Duration::from_millis(300));
    vec![message, json!({"type": "stop"})]
}

#[test]
fn what_a_server_stops_counts_neither_in_a_sweep_nor_in_a_diagnosis() {
    thread::scope(|scope| {
        scope.spawn(|| {
            let (_server, port) = hostile(stops);
            let swept = failed("sweep", &["-l", "512", "-b", "1M", "-t", "1s", "--repeat", "1"], &port);
            caveat(&swept, "sender_stopped");
            let test = &swept["result"]["points"][0]["tests"][0];
            assert_eq!((&test["figures"], &test["error"]["code"]), (&Value::Null, &json!("sender_stopped")));
            assert_eq!(swept["result"]["knees"][0]["limit"], "no_result");
        });
        scope.spawn(|| {
            let (_server, port) = hostile(stops);
            let diagnosed = failed("diagnose", &["--gentle", "-t", "5s"], &port);
            caveat(&diagnosed, "sender_stopped");
            let runs = diagnosed["result"]["evidence"]["runs"].as_array().unwrap();
            assert!(!runs.is_empty() && runs.iter().all(|run| run["kind"] == "failed"), "{runs:#?}");
        });
        scope.spawn(|| {
            let (_server, port) = hostile(stops);
            let near = failed("diagnose", &["--rate", "20M", "--rtt", "100ms", "-t", "5s"], &port);
            caveat(&near, "sender_stopped");
            assert_eq!(near["result"]["run_length"], "not_enough");
        });
    });
}

/// How a server ends a connection of data before the time of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It says that it sends no more over it.
    Closed,
    /// It reads no more from it.
    Reset,
}

/// The server says nothing of it: the control connection goes on to the end of the test.
#[test]
fn a_connection_that_ends_early_fails_a_test() {
    thread::scope(|scope| {
        for (fate, direction, code) in
            [(Fate::Closed, &["-R"][..], "sender_stopped"), (Fate::Reset, &[], "flow_failed")]
        {
            scope.spawn(move || {
                let (_server, port) = hostile(move |message| with_fate(message, fate));
                let options = [&["--pace", "10M", "-t", "2s", "--collect", "off"], direction].concat();
                caveat(&failed("tcp", &options, &port), code);
            });
        }
    });
}

/// Has the client connect to ports whose connections have this fate.
fn with_fate(mut message: Value, fate: Fate) -> Vec<Value> {
    if message["type"] == "accept" {
        for port in message["data_ports"].as_array_mut().unwrap() {
            *port = passing(port.as_u64().unwrap() as u16, fate).into();
        }
    }
    vec![message]
}

/// A port whose connections are passed on to the port `to`, and then have this fate.
fn passing(to: u16, fate: Fate) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            // Either end may break it off.
            thread::spawn(move || pass(&near, to, fate));
        }
    });
    port
}

fn pass(mut near: &TcpStream, to: u16, fate: Fate) -> io::Result<()> {
    let mut far = &TcpStream::connect(("127.0.0.1", to))?;
    let mut hello = [0; TCP_HELLO_BYTES];
    near.read_exact(&mut hello)?;
    far.write_all(&hello)?;
    let (mut from, mut into) = if fate == Fate::Closed { (far, near) } else { (near, far) };
    let (began, mut some) = (Instant::now(), [0; 4096]);
    while began.elapsed() < LASTS {
        let count = from.read(&mut some)?;
        into.write_all(&some[..count])?;
    }
    match fate {
        Fate::Closed => {
            near.shutdown(Shutdown::Write)?;
            io::copy(&mut far, &mut io::sink()).map(drop)
        }
        Fate::Reset => set_reset_on_close(near, true),
    }
}
