//! Whether packets leave when they should.

use longhaul_udp::{Pace, UdpParameters};
use serde_json::json;

use super::{FULL_BYTES, by, parameters};
use crate::Result;
use crate::args::Plan;
use crate::capture::Capture;
use crate::measure::{Sample, Variant, in_turns, quantile};
use crate::report::{Row, Target};
use crate::rig::Cable;
use crate::traffic::{Iperf, iperf3, longhaul};

const BITS: f64 = FULL_BYTES as f64 * 8.0;
/// What a rate may be off, in %.
const RATE_OFF: f64 = 0.1;

/// How far `rate` in bits a second is off `asked`, in %.
fn off_percent(rate: f64, asked: f64) -> f64 {
    (rate / asked - 1.0).abs() * 100.0
}

/// The gaps of what `send` sends at `rate` in single packets: a sample whose value is how far the rate is off in %.
fn gaps(rate: f64, send: impl FnOnce(&Cable) -> Result<Sample>) -> Result<Sample> {
    let cable = Cable::new()?;
    let capture = Capture::start(&cable, FULL_BYTES as usize)?;
    let sample = send(&cable)?;
    let stamps_ns = capture.finish()?;
    let gaps_ns: Vec<u64> = stamps_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let (Some(first), Some(last)) = (stamps_ns.first(), stamps_ns.last()) else {
        return Err("no packet was captured".into());
    };
    let nominal_ns = (BITS * 1e9 / rate) as u64;
    let errors_ns: Vec<u64> = gaps_ns.iter().map(|gap| gap.abs_diff(nominal_ns)).collect();
    let achieved = gaps_ns.len() as f64 * BITS * 1e9 / last.saturating_sub(*first).max(1) as f64;
    let mut detail = sample.detail;
    detail["captured_packets"] = json!(stamps_ns.len());
    detail["captured_gbit_per_second"] = json!(achieved / 1e9);
    for (name, values, q) in [
        ("gap_p50_us", &gaps_ns, 0.5),
        ("gap_p99_us", &gaps_ns, 0.99),
        ("gap_max_us", &gaps_ns, 1.0),
        ("error_p50_us", &errors_ns, 0.5),
        ("error_p99_us", &errors_ns, 0.99),
    ] {
        detail[name] = json!(quantile(values, q) as f64 / 1e3);
    }
    Ok(Sample::plain(off_percent(achieved, rate), detail))
}

/// 1 Gb/s in single packets beside iperf3, then 5 Gb/s in batches as the sender needs them.
pub(crate) fn pacing(plan: &Plan) -> Result<Vec<Row>> {
    const SINGLE: u64 = 1_000_000_000;
    const BATCHED: u64 = 5_000_000_000;
    let seconds = plan.seconds(4.0, 2.0);
    let single = UdpParameters { wire: true, ..parameters(seconds, Pace::RateBps(SINGLE)) };
    let batched = parameters(seconds, Pace::RateBps(BATCHED));
    let length = FULL_BYTES.to_string();
    let mut variants = vec![
        Variant::new("1 Gb/s", || {
            gaps(SINGLE as f64, |cable| longhaul(cable, &single).map(|outcome| outcome.sample(0.0)))
        }),
        // What the sender says: batches have no gaps to capture.
        Variant::new("5 Gb/s", || {
            let outcome = longhaul(&Cable::new()?, &batched)?;
            let spacing = outcome.tested.result.spacing;
            let mut sample = outcome.sample(off_percent(BITS * 1e9 / spacing.achieved_mean_ns, BATCHED as f64));
            sample.detail["batch_mean"] = json!(spacing.batch_packets.mean);
            sample.detail["batch_p99"] = json!(spacing.batch_packets.p99);
            sample.detail["batch_max"] = json!(spacing.batch_packets.max);
            sample.detail["gap_p50_us"] = json!(spacing.achieved.p50_ns as f64 / 1e3);
            sample.detail["gap_p99_us"] = json!(spacing.achieved.p99_ns as f64 / 1e3);
            Ok(sample)
        }),
    ];
    if Iperf::find().is_some() {
        variants.push(Variant::new("iperf3, 1 Gb/s", || {
            gaps(SINGLE as f64, |cable| iperf3(cable, &["-b", "1G", "-l", &length], seconds))
        }));
    }
    let samples = in_turns(plan, plan.rounds, &variants)?;
    let (single, batched, iperf) = (&samples[0], &samples[1], samples.get(2));

    let mut rows = vec![Row::new("1 Gb/s, rate off", "%", single).against(Target::ValueAtMost(RATE_OFF))];
    rows.extend(iperf.map(|iperf| Row::new("1 Gb/s, iperf3's rate off", "%", iperf)));
    for (name, of, judged) in [
        ("1 Gb/s, gap p50", "gap_p50_us", false),
        ("1 Gb/s, gap p99", "gap_p99_us", true),
        ("1 Gb/s, p99 of |gap - 11.584 µs|", "error_p99_us", true),
    ] {
        let row = Row::new(name, "µs", &by(single, of));
        rows.push(match iperf {
            Some(iperf) if judged => row.beside(&by(iperf, of)).against(Target::RatioBelow(1.0)),
            Some(iperf) => row.beside(&by(iperf, of)),
            None => row,
        });
    }
    rows.push(Row::new("5 Gb/s, rate off", "%", batched).against(Target::ValueAtMost(RATE_OFF)));
    for (name, unit, of) in [
        ("5 Gb/s, packets in a batch, mean", "", "batch_mean"),
        ("5 Gb/s, packets in a batch, p99", "", "batch_p99"),
        ("5 Gb/s, batch to batch p50", "µs", "gap_p50_us"),
        ("5 Gb/s, batch to batch p99", "µs", "gap_p99_us"),
    ] {
        rows.push(Row::new(name, unit, &by(batched, of)));
    }
    Ok(rows)
}
