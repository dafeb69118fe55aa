//! What `longhaul cc` shows of a control and of several: a [`Description`], and the [`AimdTable`].

use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

use crate::aimd::{Model, window};
use crate::algorithm::{Algorithm, Variant};
use crate::response::{mathis_window, padhye_window, rfc3649_window};
use crate::settings::Settings;

/// The rates of loss at which response functions are shown.
pub const LOSSES: [f64; 7] = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];

/// A control: its source, its parameters, and the window that it holds at a rate of loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Description {
    /// The control.
    pub algorithm: &'static str,
    /// Its name in words.
    pub title: &'static str,
    /// Its paper or RFC.
    pub source: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Its name in the kernel.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    pub name: String,
    /// Its name in the kernel with Linux's parameters; `None` where Linux has no such module.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    pub linux_variant: Option<String>,
    /// How Linux's module differs; `None` where there is none.
    pub linux_differs: Option<&'static str>,
    /// Its parameters.
    pub parameters: Vec<DescribedParameter>,
    /// The mean window by rate of loss, without queues.
    pub response_window_packets: Vec<DescribedResponse>,
}

/// A parameter of a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DescribedParameter {
    /// Its name, as `--set` takes it.
    pub name: &'static str,
    /// The paper's value, as stored.
    pub paper: u32,
    /// Linux's value, as stored; `None` where Linux has no such module.
    pub linux: Option<u32>,
    /// A stored 1 means one over this.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub unit: u32,
    /// The largest value that can be stored.
    pub most: u32,
    /// What it means.
    pub meaning: &'static str,
}

/// Mean windows at one rate of loss, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DescribedResponse {
    /// Share of packets lost, 0 to 1.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub loss: f64,
    /// With the paper's parameters; `None` where there is no response function.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub paper: Option<f64>,
    /// With Linux's parameters; `None` where there is no such variant, or no response function.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub linux: Option<f64>,
    /// Reno's, in packets.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub reno: f64,
}

impl Description {
    /// `algorithm`, with response functions at a round trip of `rtt`.
    pub fn of(algorithm: Algorithm, rtt: Nanos) -> Self {
        let has_linux = algorithm.has_linux_variant();
        let parameters = algorithm.parameters().iter().map(|parameter| DescribedParameter {
            name: parameter.name,
            paper: parameter.paper,
            linux: has_linux.then_some(parameter.linux),
            unit: parameter.unit,
            most: parameter.most,
            meaning: parameter.meaning,
        });
        let models = variants(algorithm);
        let response = LOSSES.map(|loss| {
            let window = |wanted| {
                let found = models.iter().find(|(variant, _)| *variant == wanted);
                found.map(|(_, model)| model.window_at(loss, rtt))
            };
            DescribedResponse {
                loss,
                paper: window(Variant::Paper),
                linux: window(Variant::Linux),
                reno: Model::Reno.window_at(loss, rtt),
            }
        });
        Self {
            algorithm: algorithm.name(),
            title: algorithm.title(),
            source: algorithm.source(),
            summary: algorithm.summary(),
            name: algorithm.kernel_name(Variant::Paper),
            linux_variant: has_linux.then(|| algorithm.kernel_name(Variant::Linux)),
            linux_differs: algorithm.linux_differs(),
            parameters: parameters.collect(),
            response_window_packets: response.into(),
        }
    }
}

/// The models of `algorithm`: the paper's and, where Linux has such a module, Linux's; none for a control without a response function.
pub fn variants(algorithm: Algorithm) -> Vec<(Variant, Model)> {
    let has_model = Model::named(algorithm.name()).is_ok();
    let variants = [Variant::Paper, Variant::Linux].into_iter().filter(|_| has_model);
    variants.filter_map(|variant| Some((variant, Model::Ours(Settings::new(algorithm, variant).ok()?)))).collect()
}

/// The response functions of papers, by name: the mean window, in packets, at a rate of loss.
pub fn formulas(loss: f64, rtt: Nanos) -> [(&'static str, f64); 3] {
    [
        ("mathis", mathis_window(loss, 1.0)),
        ("padhye", padhye_window(loss, rtt.as_secs_f64())),
        ("rfc3649", rfc3649_window(loss)),
    ]
}

/// The AIMD table: the window for a rate, the time to recover from a loss, the loss that can be borne; and response functions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AimdTable {
    /// A row for each control and rate.
    pub rows: Vec<AimdRow>,
    /// Response functions, by rate of loss.
    pub response: Vec<Response>,
}

/// A control at a rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AimdRow {
    /// The control.
    pub algorithm: &'static str,
    /// The rate, in bits of whole packets a second.
    pub rate_bps: u64,
    /// The mean window that carries the rate.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub window_packets: f64,
    /// Time from one loss at that window until the window is reached again, in nanoseconds.
    pub recovery_ns: u64,
    /// The largest share of packets that may be lost for that mean window, 0 to 1.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub supportable_loss: f64,
}

/// Mean windows at one rate of loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Response {
    /// Share of packets lost, 0 to 1.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub loss: f64,
    /// mathis, padhye, rfc3649.
    pub formulas: Vec<ResponsePoint>,
    /// The controls, each by its own cycle.
    pub algorithms: Vec<ResponsePoint>,
}

/// The mean window of a formula or a control.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResponsePoint {
    /// The formula or control.
    pub function: &'static str,
    /// The mean window.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub window_packets: f64,
    /// That window each round trip, in bits of whole packets a second.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub rate_bps: f64,
}

impl AimdTable {
    /// The table of `models` at `rates`, for a round trip of `rtt` and packets of `mtu_bytes`.
    pub fn of(models: &[Model], rates: &[BitRate], rtt: Nanos, mtu_bytes: u32) -> Self {
        let row = |model: &Model, rate: BitRate| {
            let row = model.row(window(rate, rtt, mtu_bytes), rtt);
            AimdRow {
                algorithm: model.name(),
                rate_bps: rate.0,
                window_packets: row.window_packets,
                recovery_ns: Nanos::from_secs_f64(row.recovery_s).0,
                supportable_loss: row.supportable_loss,
            }
        };
        let point = |(function, window_packets): (&'static str, f64)| {
            let rate_bps = window_packets * f64::from(mtu_bytes) * 8.0 / rtt.as_secs_f64();
            ResponsePoint { function, window_packets, rate_bps }
        };
        let response = LOSSES.map(|loss| Response {
            loss,
            formulas: formulas(loss, rtt).map(point).into(),
            algorithms: models.iter().map(|model| point((model.name(), model.window_at(loss, rtt)))).collect(),
        });
        Self {
            rows: models.iter().flat_map(|model| rates.iter().map(move |rate| row(model, *rate))).collect(),
            response: response.into(),
        }
    }
}
