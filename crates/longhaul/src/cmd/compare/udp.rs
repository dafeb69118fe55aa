//! `longhaul compare` of two results of `longhaul watch --udp`: what became of each datagram between two hosts' programs.

use std::path::Path;
use std::process::ExitCode;

use longhaul_report::saved::{COMPARE_UDP_SCHEMA, Content, Saved};
use longhaul_report::text::watch_udp::accounts;
use longhaul_result::Caveat;
use longhaul_udp::{UdpAccounts, UdpWatchResult};
use serde::Serialize;

use crate::caveats;
use crate::output::print_result;
use crate::output::saved::{Folder, no_result, read_result};
use crate::output::{Envelope, Failure, Outcome};

/// What was asked.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The result of the one host.
    a: String,
    /// That of the other.
    b: String,
}

/// Whether it is a result, not a capture: a folder with one, or a JSON file.
pub(super) fn is_result(path: &Path) -> bool {
    path.join("result.json").is_file() || path.extension().is_some_and(|end| end == "json")
}

/// Compares the results at `a` and `b`.
pub(super) fn run(a: &Path, b: &Path, folder: Option<Folder>, json: bool) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let mut caveats = Vec::new();
    let [near, far] = [watched(a, &mut caveats)?, watched(b, &mut caveats)?];
    let (result, doubts) = compared(&near, &far);
    caveats.extend(doubts);
    let parameters = Parameters { a: a.display().to_string(), b: b.display().to_string() };
    let envelope = Envelope::new(COMPARE_UDP_SCHEMA, started_at, parameters, result, Caveat::unique(caveats));
    let saved = folder.map_or(Ok(()), |folder| folder.save(&envelope));
    print_result(&envelope, json, accounts);
    if let Err(failure) = saved {
        // The result is printed already; with --json it is the only object.
        return Ok(failure.report_beside());
    }
    Ok(ExitCode::SUCCESS)
}

/// The accounts of both hosts' datagrams, and what is doubtful about them.
fn compared(near: &UdpWatchResult, far: &UdpWatchResult) -> (UdpAccounts, Vec<Caveat>) {
    let (result, left_out) = UdpAccounts::of(near, far);
    let mut caveats = Vec::new();
    let half = |result: &UdpWatchResult| result.sockets.iter().any(|socket| !socket.began && !socket.flows.is_empty());
    if half(near) || half(far) {
        let message = "some sockets existed before the watch began: datagrams in flight at that moment, or when a watch ended, may count as lost or as surplus";
        caveats.push(Caveat::new(
            caveats::WATCHED_IN_PART,
            message,
            "watch both hosts before the programs start, until they have ended",
        ));
    }
    if left_out > 0 {
        let message = format!("{left_out} drops are counted by location and not listed: there are too many");
        caveats.push(Caveat::new(caveats::ENTRIES_LEFT_OUT, message, "the results of the two hosts list them"));
    }
    (result, caveats)
}

fn watched(path: &Path, caveats: &mut Vec<Caveat>) -> Result<UdpWatchResult, Failure> {
    let (file, text) = read_result(path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    match saved.content {
        Content::WatchUdp(result) => {
            caveats.extend(saved.caveats);
            Ok(*result)
        }
        _ => Err(Failure::usage(format!("{} is not a result of longhaul watch --udp", file.display()))
            .remedy("compare two captures, or the results of longhaul watch --udp at two hosts")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result(local: &str, began: bool, flows: Vec<Value>) -> UdpWatchResult {
        let socket = json!({
            "number": 0, "local": local, "cookie": 1, "first_seen_ns": 0, "last_seen_ns": 1, "began": began,
            "ended": false, "shares_port": false, "dropped_packets": 0, "drops": [], "flows": flows,
        });
        UdpWatchResult { sockets: vec![serde_json::from_value(socket).unwrap()], ..UdpWatchResult::default() }
    }

    fn flow(local: &str, remote: &str, sent: u64, drops: usize) -> Value {
        let drop = json!({"location": "receiver_socket_buffer", "reason": "full", "sent": false, "packets": 1});
        json!({
            "local": local, "remote": remote, "sent_packets": sent, "sent_bytes": 0, "received_packets": 0,
            "received_bytes": 0, "drops": vec![drop; drops],
        })
    }

    /// Of one that existed before, and of drops that are too many to list.
    #[test]
    fn what_is_doubtful_about_accounts_is_told() {
        let told = |began, drops| {
            let near = result("0.0.0.0:4000", began, vec![flow("10.0.0.1", "10.0.0.2:53", 1_000, 0); 300]);
            let far = result("0.0.0.0:53", true, vec![flow("10.0.0.2", "10.0.0.1:4000", 0, drops)]);
            let (accounts, caveats) = compared(&near, &far);
            assert_eq!(accounts.accounts.len(), 300);
            caveats
        };
        assert!(told(true, 1).is_empty());
        assert!(matches!(&told(false, 1)[..], [one] if one.is(caveats::WATCHED_IN_PART)));
        let left_out = told(true, 300);
        assert!(matches!(&left_out[..], [one] if one.is(caveats::ENTRIES_LEFT_OUT)), "{left_out:?}");
        // 300 drops in each of 300 accounts.
        assert!(left_out[0].message.starts_with(&format!("{} drops", 90_000 - 65_536)), "{left_out:?}");
    }
}
