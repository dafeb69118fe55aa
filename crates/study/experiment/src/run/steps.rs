//! What a flow got with each congestion control of a schedule.

use longhaul_report::html::tcp_goodput::Step;
use longhaul_session::TestEnd;
use longhaul_tcp::{MAX_SAMPLES, Sample, Series, TcpStreamReport, fields};
use longhaul_units::Nanos;

/// Each step of the first flow, if there are several: by the acknowledged bytes of its samples, without the first `omit`.
pub(super) fn of(end: &TestEnd, omit: Nanos) -> Vec<Step> {
    let reported = end.local.tcp.as_ref().and_then(|tcp| tcp.of(false, true).next());
    let Some(TcpStreamReport { samples: Some(text), congestion, .. }) = reported else { return Vec::new() };
    if congestion.len() < 2 {
        return Vec::new();
    }
    let Ok(series) = Series::from_text(text, MAX_SAMPLES) else { return Vec::new() };
    let samples = series.samples();
    let Some(first) = samples.first() else { return Vec::new() };
    let names = congestion.iter().map(|since| since.name.as_str());
    by_control(samples, first.at_ns.saturating_add(omit.0), names)
}

/// Samples are grouped by the number of their control, which is its place in `names`.
fn by_control<'a>(samples: &[Sample], from_ns: u64, names: impl Iterator<Item = &'a str>) -> Vec<Step> {
    let step = |(number, name): (usize, &str)| {
        let own: Vec<&Sample> = samples
            .iter()
            .filter(|sample| usize::from(sample.congestion) == number && sample.at_ns >= from_ns)
            .collect();
        let (first, last) = (own.first()?, own.last()?);
        let seconds = last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
        let acked = |sample: &Sample| sample.info.value(fields::BYTES_ACKED);
        let windows = own.iter().map(|sample| sample.info.value(fields::SND_CWND) as f64);
        (seconds > 0.0).then(|| Step {
            control: name.strip_prefix("lh_").unwrap_or(name).to_owned(),
            goodput_bps: (acked(last).saturating_sub(acked(first)) as f64 * 8.0 / seconds) as u64,
            mean_cwnd_packets: windows.sum::<f64>() / own.len() as f64,
        })
    };
    names.enumerate().filter_map(step).collect()
}
