//! Pages of saved results with samples of TCP beside them: of `tcp` and `watch`.

use longhaul_report::html::over_time::dropped::DroppedOverTime;
use longhaul_report::html::over_time::{tcp, watched};
use longhaul_report::parquet::{End, ReadSamples};
use longhaul_report::saved::TcpAsked;
use longhaul_result::LocationMethod;
use longhaul_tcp::{TcpResult, WatchResult};
use longhaul_terms::Directions;

use crate::cmd::show::read::Read;
use crate::cmd::watch::WatchParameters;
use crate::output::Failure;

/// Locations of losses whose time live reports of drop events tell.
const TIMED: [&str; 3] = ["snd_txloss", "rcv_rxloss", "tcp_pruning"];

/// Of `longhaul tcp`.
pub(super) fn tested(read: &Read<'_>, asked: &TcpAsked, results: &Directions<TcpResult>) -> String {
    let (first, second) = match results {
        Directions::One(result) => (result, None),
        Directions::Both { forward, backward } => (forward, Some(backward)),
    };
    let mut left_out = Vec::new();
    let mut samples = samples(read, first.samples_file.as_deref(), &mut left_out);
    if left_out.is_empty() && [first].into_iter().chain(second).any(|result| hosts_dropped(result)) {
        left_out.push("What the hosts dropped over time is left out: only the --html of the test draws it.".into());
    }
    let tested = read.tested(&format!("TCP to {}", asked.host), left_out);
    // The samples of both ends: each flow says which it is of.
    let ends = [End { flows: samples.take(), unix_offset_ns: None }];
    let client_sends = asked.tcp.direction.client_sends();
    tcp::Report { tested, results, client_sends, ends: &ends, dropped: &<[DroppedOverTime; 2]>::default() }.html()
}

/// Of `longhaul watch`.
///
/// # Errors
/// The result does not say what was watched.
pub(super) fn watched(read: &Read<'_>, result: &WatchResult) -> Result<String, Failure> {
    let title = read.asked::<WatchParameters>()?.title();
    let mut left_out = Vec::new();
    let mut samples = samples(read, result.samples_file.as_deref(), &mut left_out);
    Ok(watched::Report { tested: read.tested(&title, left_out), result, samples: &samples.take() }.html())
}

/// The samples of the table `name`. Without it there are none, and `left_out` says why.
fn samples(read: &Read<'_>, name: Option<&str>, left_out: &mut Vec<String>) -> ReadSamples {
    let samples = match name {
        Some(name) => read.table(name, ReadSamples::read),
        None => Err("the samples were not saved; -o DIR keeps them in a table".into()),
    };
    samples.unwrap_or_else(|why| {
        left_out.push(format!("Figures over time are left out: {why}"));
        ReadSamples::default()
    })
}

/// Whether drop events told of packets that a host dropped.
fn hosts_dropped(result: &TcpResult) -> bool {
    let places = result.loss_bytes_by_location.places();
    let timed = |(place, bytes): (&str, u64)| bytes > 0 && TIMED.contains(&place);
    result.location_method == LocationMethod::Bpf && places.into_iter().any(timed)
}
