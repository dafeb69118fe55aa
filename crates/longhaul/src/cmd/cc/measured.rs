//! Measured points beside the response functions (`longhaul cc table --measured`).
//!
//! A flow's rate of loss is the share of its packets that it retransmitted, without spurious retransmissions. A flow that loses several
//! packets at a time has fewer loss events than that: the functions are then evaluated at too high a loss.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use longhaul_congestion::aimd::Model;
use longhaul_congestion::description::formulas;
use longhaul_result::Caveat;
use longhaul_tcp::TcpStreamResult;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::caveats;
use crate::cmd::cc::{packets, significant};

/// Bound on the size of a file that is read.
const FILE_BYTES_MOST: u64 = 256 << 20;
/// Bound on flows of all files together: a test has at most 128.
const FLOWS_MOST: usize = 1_000;
/// Bound on windows that are computed: that of HighSpeed takes 14 ms.
const WINDOWS_MOST: usize = 128;
/// Significant digits of rates of loss and round trips for which they are: windows are then off by a percent at most, and flows that are alike
/// share them.
const DIGITS: i32 = 3;

/// Windows by response functions.
#[derive(Debug, Default)]
struct Windows {
    /// At most [`WINDOWS_MOST`], by control, rate of loss (its bits) and round trip (nanoseconds).
    computed: HashMap<(&'static str, u64, u64), f64>,
    /// Flows whose windows would be more than these.
    left_out: usize,
}

impl Windows {
    fn of(&mut self, model: &Model, loss: f64, rtt: Nanos) -> Option<f64> {
        let loss = significant(loss, DIGITS);
        let rtt = Nanos(significant(rtt.0 as f64, DIGITS).round() as u64);
        let input = (model.name(), loss.to_bits(), rtt.0);
        if let Some(window) = self.computed.get(&input) {
            return Some(*window);
        }
        if self.computed.len() == WINDOWS_MOST {
            self.left_out += 1;
            return None;
        }
        let window = model.window_at(loss, rtt);
        self.computed.insert(input, window);
        Some(window)
    }
}

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
    /// Mean window by the response function of the control; `None` where there is none, or it is not computed, as a caveat says.
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
    fn of(flow: &TcpStreamResult, windows: &mut Windows) -> Option<Self> {
        let (rtt, mss) = (Nanos(flow.mean_rtt_ns?), flow.mss_bytes.max(1) as f64);
        let sent_packets = flow.bytes.saturating_add(flow.retransmitted_bytes.unwrap_or(0)) as f64 / mss;
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
            expected_packets: Model::named(control).ok().and_then(|model| windows.of(&model, loss, rtt)),
            mathis_packets,
            padhye_packets,
            rfc3649_packets,
        })
    }
}

/// Flows of saved results that lost packets.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The first of them, at most [`FLOWS_MOST`].
    pub(crate) points: Vec<Point>,
    /// Flows after these, whether they lost packets or not.
    left_out: usize,
    windows: Windows,
}

impl Measured {
    /// Adds the flows in a result of `longhaul tcp` or `longhaul lab run`; `path` is a file, or the folder of a result.
    pub(crate) fn read(&mut self, path: &Path) -> Result<(), String> {
        let file = if path.is_dir() { path.join("result.json") } else { path.to_owned() };
        self.add(&longhaul_units::read_text(&file, FILE_BYTES_MOST).map_err(|error| error.to_string())?)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let json: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let wanted = "give what `longhaul tcp --json` or `longhaul lab run --json` printed";
        let schema = json["schema"].as_str().unwrap_or_default();
        if schema != "longhaul.tcp/1" && schema != "longhaul.lab.run/2" {
            return Err(format!("not a result of TCP tests; {wanted}"));
        }
        let before = self.points.len() + self.left_out;
        for streams in streams(&json["result"]) {
            let flows = Vec::<TcpStreamResult>::deserialize(streams)
                .map_err(|error| format!("a flow cannot be read: {error}; {wanted}"))?;
            for flow in &flows {
                if self.points.len() == FLOWS_MOST {
                    self.left_out += 1;
                } else {
                    self.points.extend(Point::of(flow, &mut self.windows));
                }
            }
        }
        if self.points.len() + self.left_out == before {
            return Err("no flow in it lost a packet".into());
        }
        Ok(())
    }

    /// That flows are left out, or windows of flows, if some are.
    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let caveat = |message| Caveat::new(caveats::FLOWS_LEFT_OUT, message, "give fewer results with --measured");
        let (flows, windows) = (self.left_out, self.windows.left_out);
        let mut told = Vec::new();
        if flows > 0 {
            let message = format!("{flows} flows are left out, those after the first {FLOWS_MOST} that lost packets");
            told.push(caveat(message));
        }
        if windows > 0 {
            let message = format!("{windows} flows have no window by their own control: {WINDOWS_MOST} are computed");
            told.push(caveat(message));
        }
        told
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A flow that lost one packet of a byte.
    fn flow(bytes: u64, control: &str) -> Value {
        json!({
            "stream": 0, "goodput_bps": 1, "duration_ns": 1, "bytes": bytes, "retransmitted_bytes": 1,
            "retransmits": 1, "spurious_retransmits": 0, "congestion_control": control, "congestion_starts_ns": [],
            "mss_bytes": 1, "mean_rtt_ns": 1_000_000, "mean_cwnd_bytes": 9,
            "limited_by": { "congestion_window": 1.0, "receive_window": 0.0, "send_buffer": 0.0, "application": 0.0 },
            "rfc6349": {}, "socket_buffers": {}, "sender_port": 1, "receiver_port": 1,
        })
    }

    fn result(flows: &[Value]) -> String {
        json!({ "schema": "longhaul.tcp/1", "result": { "streams": flows } }).to_string()
    }

    #[test]
    fn flows_are_bounded_and_equal_ones_are_computed_once() {
        let mut measured = Measured::default();
        measured.add(&result(&vec![flow(9_999, "reno"); FLOWS_MOST])).unwrap();
        assert_eq!((measured.points.len(), measured.windows.computed.len()), (FLOWS_MOST, 1));
        assert!(measured.caveats().is_empty());
        measured.add(&result(&[flow(9_999, "reno"), flow(9_999, "bic")])).unwrap();
        assert_eq!((measured.points.len(), measured.windows.computed.len()), (FLOWS_MOST, 1));
        let told = measured.caveats();
        assert!(told.len() == 1 && told[0].message.starts_with("2 flows are left out"), "{told:?}");
    }

    /// Each takes some milliseconds.
    #[test]
    fn windows_are_bounded_and_flows_that_are_nearly_alike_share_one() {
        let mut measured = Measured::default();
        let most = WINDOWS_MOST as u64;
        let mut flows: Vec<Value> = (0..most + 2).map(|at| flow((110 + at) * 1_000, "cubic")).collect();
        flows.push(flow(110_020, "cubic"));
        measured.add(&result(&flows)).unwrap();
        let own: Vec<_> = measured.points.iter().map(|point| point.expected_packets).collect();
        assert!(own[..WINDOWS_MOST].iter().all(Option::is_some), "{own:?}");
        assert_eq!(own[WINDOWS_MOST..], [None, None, own[0]]);
        let told = measured.caveats();
        assert!(told.len() == 1 && told[0].message.starts_with("2 flows have no window"), "{told:?}");
    }

    #[test]
    fn each_control_has_its_own_window() {
        let mut measured = Measured::default();
        measured.add(&result(&[flow(9_999, "reno"), flow(9_999, "lh_scalable"), flow(99_999, "reno")])).unwrap();
        let own: Vec<_> = measured.points.iter().map(|point| point.expected_packets.unwrap()).collect();
        assert!(own[0] < own[1] && own[0] < own[2] && measured.windows.computed.len() == 3, "{own:?}");
    }

    #[test]
    fn sums_of_bytes_do_not_wrap() {
        let mut measured = Measured::default();
        measured.add(&result(&[flow(u64::MAX, "cubic")])).unwrap();
        assert!((1e-20..1e-19).contains(&measured.points[0].loss), "{measured:?}");
        let none = json!({ "streams": [] });
        assert_eq!(measured.add(&none.to_string()).unwrap_err().split(';').next(), Some("not a result of TCP tests"));
        assert_eq!(measured.add(&result(&[])).unwrap_err(), "no flow in it lost a packet");
    }
}
