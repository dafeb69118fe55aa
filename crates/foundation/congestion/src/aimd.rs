//! The AIMD table: the window for a rate, the time to recover from one loss, and the rate of loss that a flow can bear.
//!
//! The window of a flow that loses a packet at each peak is a sawtooth: it falls by the control's decrease, and grows by its increase
//! up to the peak. The length of this cycle is the time to recover, its packets are those between two losses, and its mean is the
//! window that carries the rate. For Reno that is Mathis' `1.22/sqrt(p)`.
//!
//! The round trip is constant, as if the path had no queue: rules that depend on delay (Illinois, YeAH, FAST, Compound, H-TCP's
//! decrease) take their most aggressive value. Vegas then grows as Reno and has no peak of its own. Westwood+ is not here: its decrease
//! depends on the queue alone. BBRv3 is not: it has no such cycle, and its rate is the path's, less what
//! was lost since it probed last.
//!
//! Source: DataTAG (RIPE-47, 2004), "TCP (Reno) - Performance": `wnd/2` round trips, `1.5/wnd²`.

use longhaul_units::{BitRate, Nanos};

use crate::algorithm::{Algorithm, Variant};
use crate::highspeed::Curve;
use crate::settings::Settings;

/// A control in the table: one of the kernel's, or one of longhaul's with its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// RFC 5681: one packet a round trip, half.
    Reno,
    /// One of longhaul's.
    Ours(Settings),
}

/// The control has no cycle, or there is no control with this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no AIMD model of `{name}`: there are {}", model_names().join(", "))]
pub struct NoModel {
    /// What was asked for.
    pub name: String,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Payload and headers above Ethernet: rate × RTT / MTU.
    pub window_packets: f64,
    /// Time from one loss at that window until the window is reached again.
    pub recovery_s: f64,
    /// The largest share of packets that may be lost for that mean window.
    pub supportable_loss: f64,
}

/// The names of all controls with a model.
pub fn model_names() -> Vec<&'static str> {
    let ours = Algorithm::ALL.into_iter().filter(|algorithm| has_cycle(*algorithm)).map(Algorithm::name);
    ["reno"].into_iter().chain(ours).collect()
}

fn has_cycle(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Westwood | Algorithm::Bbr3)
}

/// The window that carries `rate` (bits of packets of `mtu_bytes`) over a round trip of `rtt`, in packets.
pub fn window(rate: BitRate, rtt: Nanos, mtu_bytes: u32) -> f64 {
    rate.0 as f64 / 8.0 * rtt.as_secs_f64() / f64::from(mtu_bytes)
}

/// Steps of the sum over a cycle: windows are exact to some 10⁻⁴.
const STEPS: usize = 4000;
/// The largest window that is tried.
const MOST_WINDOW: f64 = 1e12;
/// How close a crossing is met, as a difference of logarithms: the sum over a cycle is rounded by some 10⁻¹⁴.
const CLOSE: f64 = 1e-12;

impl Model {
    /// `reno`, or one of longhaul's controls with the parameters of its paper.
    ///
    /// # Errors
    /// [`NoModel`].
    pub fn named(name: &str) -> Result<Self, NoModel> {
        let none = || NoModel { name: name.into() };
        match name {
            "reno" => Ok(Self::Reno),
            other => match other.parse() {
                Err(_) => Err(none()),
                Ok(algorithm) if !has_cycle(algorithm) => Err(none()),
                Ok(algorithm) => Settings::new(algorithm, Variant::Paper).map(Self::Ours).map_err(|_| none()),
            },
        }
    }

    /// The name, without `lh_`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Ours(settings) => settings.algorithm().name(),
        }
    }

    /// The row for a mean window of `window` packets.
    pub fn row(&self, window: f64, rtt: Nanos) -> Row {
        let (rules, rtt_s) = (Rules::of(self), rtt.as_secs_f64());
        let peak = rules.peak(rtt_s, |cycle| cycle.mean_window() / window);
        Row {
            window_packets: window,
            recovery_s: rules.cycle(window, rtt_s).seconds,
            supportable_loss: 1.0 / rules.cycle(peak, rtt_s).packets,
        }
    }

    /// The response function: the mean window, in packets, where one packet in `1/loss` is lost.
    pub fn window_at(&self, loss: f64, rtt: Nanos) -> f64 {
        let (rules, rtt_s) = (Rules::of(self), rtt.as_secs_f64());
        let peak = rules.peak(rtt_s, |cycle| cycle.packets * loss);
        rules.cycle(peak, rtt_s).mean_window()
    }
}

/// The rules of a control with the values of its parameters, which are looked up once: a search has a quarter of a million steps.
enum Rules {
    Reno,
    Cubic { c: f64, keep: f64 },
    Highspeed(Curve),
    Scalable { low_window: f64, decrease: f64, packets_for_one_more: f64 },
    Bic { low_window: f64, decrease: f64, divisor: f64, whole_steps: bool, last_rtts: f64, most: f64 },
    Htcp { decrease: f64, low_s: f64, rtt_scaling: bool },
    Hybla { rtt0_us: f64 },
    Illinois { window_threshold: f64, decrease: f64, increase: f64 },
    Yeah { decrease: f64, packets_for_one_more: f64 },
    Vegas { decrease: f64 },
    Fast { increase: f64 },
    Compound { low_window: f64, decrease: f64, alpha: f64 },
}

impl Rules {
    /// Those of a control without a cycle are Reno's.
    fn of(model: &Model) -> Self {
        let Model::Ours(settings) = model else { return Self::Reno };
        let of = |name: &str| parameter(settings, name);
        match settings.algorithm() {
            Algorithm::Cubic => Self::Cubic { c: of("c_1024"), keep: of("keep_1024") },
            Algorithm::Highspeed => Self::Highspeed(curve(settings)),
            Algorithm::Scalable => Self::Scalable {
                low_window: of("low_window"),
                decrease: of("decrease_1024"),
                packets_for_one_more: of("packets_for_one_more"),
            },
            Algorithm::Bic => Self::Bic {
                low_window: of("low_window"),
                decrease: 1.0 - of("keep_1024"),
                divisor: of("search_divisor"),
                whole_steps: of("whole_steps") > 0.0,
                last_rtts: of("last_packet_rtts"),
                most: of("most_increase"),
            },
            Algorithm::Htcp => Self::Htcp {
                decrease: 1.0 - of("most_keep_128"),
                low_s: of("low_us") / 1e6,
                rtt_scaling: of("rtt_scaling") > 0.0,
            },
            Algorithm::Hybla => Self::Hybla { rtt0_us: of("rtt0_us") },
            Algorithm::Illinois => Self::Illinois {
                window_threshold: of("window_threshold"),
                decrease: of("least_beta_64"),
                increase: of("most_alpha_128"),
            },
            Algorithm::Yeah => {
                Self::Yeah { decrease: 0.5_f64.powf(of("delta")), packets_for_one_more: of("packets_for_one_more") }
            }
            Algorithm::Vegas => Self::Vegas { decrease: 1.0 - of("keep_128") },
            Algorithm::Fast => Self::Fast { increase: of("gamma_128") * of("alpha") / of("update_rtts") },
            Algorithm::Compound => {
                Self::Compound { low_window: of("low_window"), decrease: of("beta_256"), alpha: of("alpha_256") }
            }
            Algorithm::Westwood | Algorithm::Bbr3 => Self::Reno,
        }
    }

    /// The least peak at which `share`, some quantity of the cycle over what is wanted of it, is one or more, as it is from somewhere on.
    fn peak(&self, rtt_s: f64, share: impl Fn(&Cycle) -> f64) -> f64 {
        let share = |peak: f64| share(&self.cycle(peak, rtt_s));
        match self {
            // Each step of its cycle takes logarithms: 60 cycles took 14 ms. Its rules have no jump, unlike BIC's.
            Self::Highspeed(_) => crossing(share),
            _ => search(|peak| share(peak) >= 1.0),
        }
    }

    /// The cycle from a loss at `peak` to the next peak.
    fn cycle(&self, peak: f64, rtt_s: f64) -> Cycle {
        if let Self::Cubic { c, keep } = *self {
            return cubic_cycle(peak, rtt_s, c, keep);
        }
        let low = peak * (1.0 - self.decrease(peak));
        // Narrower towards the peak, where BIC's last packets take most of the time.
        let below = |part: f64| (peak - low) * (1.0 - part / STEPS as f64).powi(3);
        let mut cycle = Cycle { seconds: 0.0, packets: 0.0, rtt_s };
        for index in 0..STEPS {
            let index = index as f64;
            let window = peak - below(index + 0.5);
            let packets_a_second = self.increase(window, peak, cycle.seconds, rtt_s) / rtt_s;
            let seconds = (below(index) - below(index + 1.0)) / packets_a_second;
            cycle.seconds += seconds;
            cycle.packets += window * seconds / rtt_s;
        }
        cycle
    }

    /// Share of the window by which a loss reduces it.
    fn decrease(&self, window: f64) -> f64 {
        match *self {
            Self::Highspeed(curve) => curve.decrease(window),
            Self::Scalable { low_window, decrease, .. } if window > low_window => decrease,
            Self::Bic { low_window, decrease, .. } if window > low_window => decrease,
            Self::Illinois { window_threshold, decrease, .. } if window >= window_threshold => decrease,
            Self::Htcp { decrease, .. }
            | Self::Yeah { decrease, .. }
            | Self::Vegas { decrease }
            | Self::Compound { decrease, .. } => decrease,
            _ => 0.5,
        }
    }

    /// Packets that a round trip adds to the window, `since_s` after the loss at `peak`.
    fn increase(&self, window: f64, peak: f64, since_s: f64, rtt_s: f64) -> f64 {
        match *self {
            Self::Highspeed(curve) => curve.increase(window).max(1.0),
            Self::Scalable { low_window, packets_for_one_more, .. } if window > low_window => {
                window / packets_for_one_more
            }
            Self::Yeah { packets_for_one_more, .. } => (window / packets_for_one_more).max(1.0),
            Self::Bic { low_window, divisor, whole_steps, last_rtts, most, .. } if window > low_window => {
                // Windows are whole packets. Linux rounds steps down, too.
                let distance = (peak - window).ceil();
                let step = distance / divisor;
                let (step, whole) = if whole_steps { (step.floor(), step < 2.0) } else { (step, distance <= 1.0) };
                if whole { 1.0 / last_rtts } else { step.min(most) }
            }
            Self::Htcp { decrease, low_s, rtt_scaling } => {
                let beyond = (since_s - low_s).max(0.0);
                let scale = if rtt_scaling { (0.1 / rtt_s).clamp(0.5, 10.0) } else { 1.0 };
                2.0 * decrease * (1.0 + 10.0 * beyond + beyond * beyond / 4.0) / scale
            }
            Self::Hybla { rtt0_us } => (rtt_s * 1e6 / rtt0_us).max(1.0).powi(2),
            Self::Illinois { window_threshold, increase, .. } if window >= window_threshold => increase,
            Self::Fast { increase } => increase,
            Self::Compound { low_window, alpha, .. } if window >= low_window => (window.powf(0.75) * alpha).max(1.0),
            _ => 1.0,
        }
    }
}

struct Cycle {
    seconds: f64,
    packets: f64,
    rtt_s: f64,
}

impl Cycle {
    fn mean_window(&self) -> f64 {
        self.packets * self.rtt_s / self.seconds
    }
}

/// That of the cubic curve or of the Reno-friendly line, whichever is back sooner (RFC 9438 §4.2, §4.3, §5).
fn cubic_cycle(peak: f64, rtt_s: f64, c: f64, keep: f64) -> Cycle {
    let fall = peak * (1.0 - keep);
    let plateau_s = (fall / c).cbrt();
    let line_s = fall / (3.0 * (1.0 - keep) / (1.0 + keep)) * rtt_s;
    // The mean of C(t - K)³ + peak from 0 to K is a quarter of the fall below the peak.
    let (seconds, mean) = if line_s < plateau_s { (line_s, peak - fall / 2.0) } else { (plateau_s, peak - fall / 4.0) };
    Cycle { seconds, packets: mean * seconds / rtt_s, rtt_s }
}

fn parameter(settings: &Settings, name: &str) -> f64 {
    let parameter = settings.algorithm().parameters().iter().find(|parameter| parameter.name == name);
    let stored = settings.value(name).unwrap_or_default();
    parameter.map_or(0.0, |parameter| parameter.value(stored))
}

fn curve(settings: &Settings) -> Curve {
    let of = |name: &str| parameter(settings, name);
    Curve::new(of("low_window") as u32, of("high_window") as u32, of("high_loss_e9"), of("high_decrease_1000"))
        .unwrap_or(Curve::RFC_3649)
}

/// The least peak window at which `enough` holds, which it does from somewhere on.
fn search(enough: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (1.0_f64, MOST_WINDOW);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if enough(middle) { high = middle } else { low = middle }
    }
    high
}

/// The peak window at which `share`, which grows with it and has no jump, is one: by straight lines in logarithms, of which some ten are enough.
///
/// Source: the Illinois method (M. Dowell and P. Jarratt, BIT 11, 1971): where the same end moves twice, the value at the other one is halved.
fn crossing(share: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, MOST_WINDOW.ln());
    let (mut below, mut above) = (share(1.0).ln(), share(MOST_WINDOW).ln());
    if below >= 0.0 {
        return 1.0;
    }
    if above.is_nan() || above <= 0.0 {
        return MOST_WINDOW;
    }
    let mut high_moved = None;
    for _ in 0..60 {
        let middle = (low * above - high * below) / (above - below);
        let at = share(middle.exp()).ln();
        if at.abs() < CLOSE {
            return middle.exp();
        }
        let is_above = at > 0.0;
        if is_above {
            (high, above) = (middle, at);
        } else {
            (low, below) = (middle, at);
        }
        if high_moved == Some(is_above) {
            *(if is_above { &mut below } else { &mut above }) /= 2.0;
        }
        high_moved = Some(is_above);
    }
    high.exp()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::response;

    const RTT: Nanos = Nanos::from_millis(200);

    fn near(value: f64, wanted: f64, within: f64) {
        assert!((value / wanted - 1.0).abs() < within, "{value}, not {wanted}");
    }

    /// DataTAG's table; its windows are rounded to two digits, and its times follow them.
    #[test]
    fn datatag() {
        let rows = [
            (10_000_000, 170.0, 17.0, 5.4e-5),
            (100_000_000, 1700.0, 170.0, 5.4e-7),
            (1_000_000_000, 17_000.0, 28.0 * 60.0, 5.4e-9),
            (10_000_000_000, 170_000.0, 4.0 * 3600.0 + 43.0 * 60.0, 5.4e-11),
        ];
        for (rate_bps, packets, recovery_s, loss) in rows {
            let row = Model::Reno.row(window(BitRate(rate_bps), RTT, 1500), RTT);
            near(row.window_packets, packets, 0.03);
            near(row.recovery_s, recovery_s, 0.03);
            near(row.supportable_loss, loss, 0.005);
            near(Model::Reno.row(packets, RTT).recovery_s, recovery_s, 0.02);
        }
    }

    #[test]
    fn a_cycle_says_what_others_formulas_say() {
        for loss in [1e-3, 1e-5, 1e-8] {
            near(Model::Reno.window_at(loss, RTT), response::mathis_window(loss, 1.0), 1e-3);
        }
        let scalable = Model::named("scalable").unwrap();
        // Kelly: recovery takes log(1 - b)/log(1 + a) = 13.4 round trips at any window, and w = 0.08/p roughly.
        for packets in [1e3, 1e5] {
            near(scalable.row(packets, RTT).recovery_s, 13.4 * 0.2, 0.01);
        }
        near(scalable.window_at(1e-5, RTT), 8000.0, 0.07);
        // RFC 3649's own response function is that of a deterministic cycle, too.
        let highspeed = Model::named("lh_highspeed").unwrap();
        for loss in [1e-4, 1e-6] {
            near(highspeed.window_at(loss, RTT), response::rfc3649_window(loss), 0.1);
        }
    }

    /// RFC 9438 §5, Eq. 6: `(C(3+β)/4(1-β))^¼·(RTT/p)^¾`, 1.054·(RTT/p)^¾; Table 1 has 5,926 packets at 10⁻⁶ and 100 ms.
    #[test]
    fn cubic() {
        let cubic = Model::named("cubic").unwrap();
        let window = cubic.window_at(1e-6, Nanos::from_millis(100));
        // C and β are 1024ths.
        near(window, 1.054 * (0.1_f64 / 1e-6).powf(0.75), 3e-3);
        near(window, 5926.0, 3e-3);
        let short = cubic.window_at(1e-3, Nanos::from_millis(1));
        assert!(short > 30.0, "Reno-friendly: {short}");
    }

    /// From 7/8 of 10,000 packets: 32 a round trip, from 64 packets below on half of the distance, and 7 round trips for the last.
    #[test]
    fn bic() {
        let round_trips = (1250.0 - 64.0) / 32.0 + (2..=64).map(|below| 2.0 / f64::from(below)).sum::<f64>() + 7.0;
        near(Model::named("bic").unwrap().row(10_000.0, RTT).recovery_s, round_trips * 0.2, 1e-3);
        // Linux: from 8,000, by quarters, whole packets, at least 2; 5 round trips for each of the last 7.
        let linux = Settings::new(Algorithm::Bic, Variant::Linux).unwrap();
        let search = (8..=64).map(|below| 1.0 / f64::from(below / 4)).sum::<f64>() + 7.0 * 5.0;
        near(Model::Ours(linux).row(10_000.0, RTT).recovery_s, ((2002.0 - 64.0) / 16.0 + search) * 0.2, 2e-3);
    }

    /// Each with its own parameters at 10⁻⁵ and 100 ms, as another program computed them; then two with Linux's. Illinois is the closed form
    /// √(α(2 − β) / 2βp), with an increase α of 10 and a decrease β of 1/8.
    #[test]
    fn windows_of_all() {
        let of_papers = [
            ("reno", 387.298_339_2),
            ("cubic", 1_054.271_666),
            ("highspeed", 1_793.107_571),
            ("scalable", 7_488.875_728),
            ("bic", 3_662.336_645),
            ("htcp", 1_855.031_317),
            ("hybla", 1_549.193_357),
            ("illinois", 2_738.612_794),
            ("yeah", 7_488.875_728),
            ("vegas", 591.607_981_3),
            ("fast", 2_738.612_820),
            ("compound", 2_552.845_407),
        ];
        assert_eq!(of_papers.map(|(name, _)| name).to_vec(), model_names());
        let of_linux = [(Algorithm::Bic, 1_626.203_767), (Algorithm::Illinois, 2_738.612_794)];
        let of_linux = of_linux.map(|(control, wanted)| (Settings::new(control, Variant::Linux).unwrap(), wanted));
        let papers = of_papers.map(|(name, wanted)| (Model::named(name).unwrap(), wanted));
        for (model, wanted) in papers.into_iter().chain(of_linux.map(|(own, wanted)| (Model::Ours(own), wanted))) {
            near(model.window_at(1e-5, Nanos::from_millis(100)), wanted, 1e-9);
        }
    }

    /// A cycle of HighSpeed takes some 0.2 ms.
    #[test]
    fn few_cycles_of_highspeed_find_the_peak_that_halving_finds() {
        let rules = Rules::of(&Model::named("highspeed").unwrap());
        for loss in [0.5, 1e-2, 1e-3, 1e-5, 1e-7, 1e-10] {
            let cycles = Cell::new(0);
            let share = |peak: f64| {
                cycles.set(cycles.get() + 1);
                rules.cycle(peak, 0.1).packets * loss
            };
            let peak = crossing(share);
            assert!(cycles.get() <= 20, "{} at {loss}", cycles.get());
            near(peak, search(|peak| share(peak) >= 1.0), 1e-11);
        }
        // None is enough, or the first is.
        assert_eq!((crossing(|_| 0.5), crossing(|_| 2.0)), (MOST_WINDOW, 1.0));
    }

    #[test]
    fn who_recovers_faster() {
        let packets = window(BitRate::from_gbit(10), RTT, 1500);
        let recovery = |name: &str| Model::named(name).unwrap().row(packets, RTT).recovery_s;
        let reno = recovery("reno");
        for name in model_names() {
            let time = recovery(name);
            assert!(time.is_finite() && time > 0.0, "{name}: {time}");
            if !["reno", "vegas"].contains(&name) {
                assert!(time < reno / 5.0, "{name}: {time} s, Reno {reno} s");
            }
        }
        assert!(recovery("scalable") < recovery("highspeed"));
        for name in ["westwood", "bbr3"] {
            assert_eq!(Model::named(name).unwrap_err().name, name);
        }
        assert!(Model::named("x").unwrap_err().to_string().contains("reno, cubic, highspeed"));
    }
}
