//! `longhaul rtt` while the route changes: routes near and far, a route that is away for a while, another address. None of it is loss of a path.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use longhaul_kernel::namespace::NetNamespace;
use longhaul_rtt::ChangedRoute;
use longhaul_rtt::probe_log::ProbeLogReader;
use longhaul_testing::program::Program;
use serde_json::Value;

use crate::common::captures::Folder;
use crate::rtt::hops::{Routers, cable, result, run};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// The first session, and its proof, take less.
const BEGUN: Duration = Duration::from_millis(1_500);

/// The routers, with a second cable from `client` to `near` (10.7.0.0/24) and a direct one from `near` to `far` (10.6.0.0/24), and a server.
fn served() -> Option<(Routers, Program)> {
    let routers = Routers::new()?;
    cable(&routers.near, &routers.far, 6);
    cable(&routers.client, &routers.near, 7);
    let server = serve(&routers.far, "10.9.0.1");
    Some((routers, server))
}

/// A server on `host` that listens at `address`; ended when dropped.
pub(crate) fn serve(host: &NetNamespace, address: &str) -> Program {
    let mut command = Command::new(LONGHAUL);
    command.args(["serve", "--bind", address, "--no-auth"]).stderr(Stdio::piped());
    let mut server = host.enter(|| command.spawn()).unwrap().unwrap();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        assert!(errors.read_line(&mut line).unwrap() > 0, "{line}");
    }
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Program(server)
}

/// Nobody tells the server that the old address is gone: what it sends there is dropped silently.
#[test]
fn a_session_of_the_old_address_gives_way_to_the_new_one() {
    let Some((routers, _server)) = served() else { return };
    let found = measured(&routers, &["--no-auth", "-t", "6s"], || {
        run(&routers.near, "ip route add blackhole 10.1.0.1/32");
        run(&routers.client, "ip address del 10.1.0.1/24 dev l1");
        run(&routers.client, "ip address add 10.1.0.77/24 dev l1");
        run(&routers.client, "ip route add default via 10.1.0.2");
    });
    let gap = found["result"]["gaps"].as_array().unwrap().iter().find(|gap| gap["why"] == "address_changed");
    let gap = gap.unwrap_or_else(|| panic!("{found}"));
    let lasted = gap["to_ns"].as_i64().unwrap() - gap["from_ns"].as_i64().unwrap();
    println!("away for {:.2} s", lasted as f64 / 1e9);
    assert!(lasted < 3_000_000_000 && found["result"]["received"].as_u64() > Some(300), "{found}");
}

/// Probes for `time`, 100 a second, and does `meanwhile` once they run.
fn measured(routers: &Routers, arguments: &[&str], meanwhile: impl FnOnce()) -> Value {
    let running = routers.spawn(LONGHAUL, &[&["rtt", "10.9.0.1", "--json", "-i", "10ms"], arguments].concat());
    sleep(BEGUN);
    meanwhile();
    result(&running.wait_with_output().unwrap())
}

fn gaps(found: &Value) -> Vec<&str> {
    let gaps = found["result"]["gaps"].as_array().unwrap().iter();
    gaps.map(|gap| gap["why"].as_str().unwrap()).filter(|why| *why != "stalled").collect()
}

#[test]
fn a_route_that_changes_far_away_is_told_with_what_was_lost_meanwhile() {
    let Some((routers, _server)) = served() else { return };
    let folder = Folder::new("rtt-way");
    let log = folder.file("log");
    let found = measured(&routers, &["--no-auth", "-t", "4s", "-o", &log], || {
        run(&routers.far, "ip route del 10.1.0.0/24");
        sleep(Duration::from_millis(400));
        run(&routers.far, "ip route add 10.1.0.0/24 via 10.6.0.1");
    });
    let result = &found["result"];
    let change = &result["path_changes"][0];
    assert_eq!((&result["path_change_count"], &change["what"]), (&1.into(), &"hops_back".into()), "{found}");
    assert_eq!((&change["from_ttl"], &change["to_ttl"]), (&62.into(), &63.into()), "{found}");
    let lost = change["lost"].as_u64().unwrap();
    assert!((25..=80).contains(&lost) && result["lost"].as_u64() == Some(lost), "{found}");
    let since = change["at_ns"].as_i64().unwrap() - result["over_time"]["began_ns"].as_i64().unwrap();
    assert!((1_000_000_000..3_500_000_000).contains(&since), "{since}: {found}");
    assert!(found["caveats"].to_string().contains("path_changed"), "{found}");
    let mut reader = ProbeLogReader::open(log.as_ref()).unwrap();
    let in_log = reader.take_path_changes();
    assert!(
        matches!(in_log[..], [ref one] if one.route == ChangedRoute::HopsBack { from_ttl: 62, to_ttl: 63 }),
        "{in_log:?}"
    );
    assert!(reader.all(|row| row.is_ok()));
}

#[test]
fn a_route_of_this_host_that_changes_is_told_and_one_that_is_away_loses_nothing() {
    let Some((routers, _server)) = served() else { return };
    for kind in [&["--no-auth"][..], &["--icmp"]] {
        let found = measured(&routers, &[kind, &["-t", "5s"]].concat(), || {
            run(&routers.client, "ip route add 10.9.0.1 via 10.7.0.2");
            sleep(Duration::from_millis(500));
            run(&routers.client, "ip route replace unreachable 10.9.0.1");
            sleep(Duration::from_millis(1_000));
            run(&routers.client, "ip route del unreachable 10.9.0.1");
        });
        let (result, changes) = (&found["result"], found["result"]["path_changes"].as_array().unwrap());
        let own = |change: &Value, at: &str| {
            let route = &change[at];
            (route["interface"].as_str().unwrap().to_owned(), route["gateway"].as_str().unwrap().to_owned())
        };
        let [first, second] = &changes[..] else { panic!("{found}") };
        let (l1, l7) = (("l1".into(), "10.1.0.2".into()), ("l7".into(), "10.7.0.2".into()));
        assert_eq!((own(first, "from"), own(first, "to")), (l1, l7), "{found}");
        assert_eq!((own(second, "from"), own(second, "to")), (own(first, "to"), own(first, "from")), "{found}");
        assert_eq!((gaps(&found), result["lost"].as_u64()), (vec!["no_route"], Some(0)), "{found}");
        let gap = result["gaps"].as_array().unwrap().iter().find(|gap| gap["why"] == "no_route").unwrap();
        let lasted = gap["to_ns"].as_i64().unwrap() - gap["from_ns"].as_i64().unwrap();
        assert!((900_000_000..1_700_000_000).contains(&lasted) && gap["left_out"].as_u64() > Some(50), "{found}");
        assert!(result["received"].as_u64() > Some(300), "{found}");
    }
}

#[test]
fn another_address_of_this_host_begins_another_session_and_loses_nothing() {
    let Some((routers, _server)) = served() else { return };
    for kind in [&["--no-auth"][..], &["--icmp"]] {
        let found = measured(&routers, &[kind, &["-t", "7s"]].concat(), || {
            run(&routers.client, "ip address del 10.1.0.1/24 dev l1");
            run(&routers.client, "ip address add 10.1.0.77/24 dev l1");
            run(&routers.client, "ip route add default via 10.1.0.2");
        });
        // The routes of an address go with it.
        let gaps: Vec<_> = gaps(&found).into_iter().filter(|why| *why != "no_route").collect();
        assert_eq!((gaps, found["result"]["lost"].as_u64()), (vec!["address_changed"], Some(0)), "{found}");
        assert!(found["result"]["received"].as_u64() > Some(350), "{found}");
        run(&routers.client, "ip address del 10.1.0.77/24 dev l1");
        run(&routers.client, "ip address add 10.1.0.1/24 dev l1");
        run(&routers.client, "ip route add default via 10.1.0.2");
    }
}
