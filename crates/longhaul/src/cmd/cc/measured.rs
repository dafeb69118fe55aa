//! Measured points beside the response functions (`longhaul cc table --measured`).
//!
//! A flow's rate of loss is the share of its packets that it retransmitted, without spurious retransmissions. A flow that loses several
//! packets at a time has fewer loss events than that: the functions are then evaluated at too high a loss.

use std::fmt::Write;
use std::path::Path;

use longhaul_congestion::aimd::Model;
use longhaul_congestion::description::formulas;
use longhaul_tcp::TcpStreamResult;
use longhaul_units::Nanos;
use serde::Serialize;
use serde_json::Value;

use crate::cmd::cc::packets;

/// Bound on the size of a file that is read.
const FILE_BYTES_MOST: u64 = 256 << 20;

/// One flow that lost packets, and the windows that response functions give for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Point {
    /// Its congestion control.
    algorithm: String,
    /// The share of its packets that it retransmitted, without spurious retransmissions.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    loss: f64,
    /// Mean round trip, in nanoseconds.
    #[cfg_attr(test, schemars(range(min = 1)))]
    rtt_ns: u64,
    /// Mean congestion window.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    window_packets: f64,
    /// Goodput.
    rate_bps: u64,
    /// Mean window by the response function of the control; `None` where there is none.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    expected_packets: Option<f64>,
    /// By Mathis et al.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    mathis_packets: f64,
    /// By Padhye et al.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    padhye_packets: f64,
    /// By RFC 3649.
    #[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
    rfc3649_packets: f64,
}

impl Point {
    /// `None` where a flow lost nothing, used several controls, or its kernel does not report enough.
    fn of(flow: &TcpStreamResult) -> Option<Self> {
        let (rtt, mss) = (Nanos(flow.mean_rtt_ns?), flow.mss_bytes.max(1) as f64);
        let sent_packets = (flow.bytes + flow.retransmitted_bytes.unwrap_or(0)) as f64 / mss;
        let real = flow.retransmits.saturating_sub(flow.spurious_retransmits) as f64;
        let loss = real / sent_packets.max(1.0);
        let several = flow.congestion_control.contains(',');
        if loss <= 0.0 || loss >= 1.0 || several || rtt == Nanos::ZERO {
            return None;
        }
        let control = flow.congestion_control.strip_prefix("lh_").unwrap_or(&flow.congestion_control);
        let [(_, mathis_packets), (_, padhye_packets), (_, rfc3649_packets)] = formulas(loss, rtt);
        Some(Self {
            algorithm: flow.congestion_control.clone(),
            loss,
            rtt_ns: rtt.0,
            window_packets: flow.mean_cwnd_bytes? as f64 / mss,
            rate_bps: flow.goodput_bps,
            expected_packets: Model::named(control).ok().map(|model| model.window_at(loss, rtt)),
            mathis_packets,
            padhye_packets,
            rfc3649_packets,
        })
    }
}

/// The flows in a result of `longhaul tcp` or `longhaul lab run`; `path` is a file, or the folder of a result.
pub(crate) fn read(path: &Path) -> Result<Vec<Point>, String> {
    let file = if path.is_dir() { path.join("result.json") } else { path.to_owned() };
    let text = longhaul_units::read_text(&file, FILE_BYTES_MOST).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_str(&text).map_err(|error| format!("no JSON: {error}"))?;
    let wanted = "give what `longhaul tcp --json` or `longhaul lab run --json` printed";
    let schema = json["schema"].as_str().unwrap_or_default();
    if schema != "longhaul.tcp/1" && schema != "longhaul.lab.run/2" {
        return Err(format!("not a result of TCP tests; {wanted}"));
    }
    let mut points = Vec::new();
    for streams in streams(&json["result"]) {
        let flows: Vec<TcpStreamResult> = serde_json::from_value(streams.clone())
            .map_err(|error| format!("a flow cannot be read: {error}; {wanted}"))?;
        points.extend(flows.iter().filter_map(Point::of));
    }
    if points.is_empty() {
        return Err("no flow in it lost a packet".into());
    }
    Ok(points)
}

/// Every list of flows, in either kind of result.
fn streams(result: &Value) -> Vec<&Value> {
    let one = |result: &'_ Value| result.get("streams").is_some();
    let mut found: Vec<&Value> = Vec::new();
    let results = [result, &result["forward"], &result["backward"]];
    found.extend(results.into_iter().filter(|result| one(result)));
    let points =
        result["tcp"].as_array().into_iter().flatten().flat_map(|series| series["points"].as_array()).flatten();
    for run in points.flat_map(|point| point["runs"].as_array()).flatten() {
        let results = [&run["flows"]["result"], &run["beside"]["result"]];
        found.extend(results.into_iter().filter(|result| one(result)));
    }
    found.into_iter().map(|result| &result["streams"]).collect()
}

/// One row for each point; empty without points.
pub(crate) fn text(points: &[Point]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nmeasured: mean window, packets, at the flow's own rate of loss and round trip\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<14} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "flow", "loss", "RTT", "measured", "own", "mathis", "padhye", "rfc3649"
    );
    for point in points {
        let own = point.expected_packets.map_or_else(|| "–".to_owned(), packets);
        let _ = writeln!(
            text,
            "{:<14} {:>9.2e} {:>7.1}ms {:>10} {own:>10} {:>10} {:>10} {:>10}",
            point.algorithm,
            point.loss,
            point.rtt_ns as f64 / 1e6,
            packets(point.window_packets),
            packets(point.mathis_packets),
            packets(point.padhye_packets),
            packets(point.rfc3649_packets),
        );
    }
    text
}
