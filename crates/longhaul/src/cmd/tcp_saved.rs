//! A TCP result as it is printed, saved, and read back.

use std::net::SocketAddr;

use longhaul_emulator::Warning;
use longhaul_session::control::TcpParameters;
use longhaul_session::tcp::TcpResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output::Envelope;

pub(crate) const TCP_SCHEMA: &str = "longhaul.tcp/1";

pub(crate) type TcpEnvelope = Envelope<TcpEnvelopeParameters, TcpResults>;

/// What was asked, and of whom.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TcpEnvelopeParameters {
    pub(crate) address: SocketAddr,
    pub(crate) host: String,
    pub(crate) tcp: TcpParameters,
}

/// One direction is the result itself.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum TcpResults {
    One(Box<TcpResult>),
    Both { forward: Box<TcpResult>, backward: Box<TcpResult> },
}

impl TcpResults {
    /// Does `work` with the result of each direction.
    pub(crate) fn each(&mut self, mut work: impl FnMut(&mut TcpResult)) {
        match self {
            Self::One(result) => work(result),
            Self::Both { forward, backward } => {
                work(forward);
                work(backward);
            }
        }
    }
}

/// A TCP result that was saved.
#[derive(Debug)]
pub(crate) struct SavedTcp {
    pub(crate) parameters: TcpParameters,
    pub(crate) results: TcpResults,
    pub(crate) warnings: Vec<Warning>,
}

impl SavedTcp {
    /// Reads what was printed.
    ///
    /// # Errors
    /// Which part of it is broken.
    pub(crate) fn parse(json: &Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Both {
            forward: Box<TcpResult>,
            backward: Box<TcpResult>,
        }
        #[derive(Deserialize)]
        struct OneWarning {
            code: String,
            message: String,
            remedy: String,
        }
        let part = |name: &str| json[name].clone();
        let broken = |part: &str, error: serde_json::Error| format!("its {part} is broken: {error}");
        let parameters: TcpEnvelopeParameters =
            serde_json::from_value(part("parameters")).map_err(|error| broken("parameters", error))?;
        let result = part("result");
        let results = if result.get("forward").is_some() {
            serde_json::from_value(result).map(|Both { forward, backward }| TcpResults::Both { forward, backward })
        } else {
            serde_json::from_value(result).map(TcpResults::One)
        };
        let warnings: Vec<OneWarning> =
            serde_json::from_value(part("warnings")).map_err(|error| broken("warnings", error))?;
        let warning = |w: OneWarning| Warning { code: w.code, message: w.message, remedy: w.remedy };
        Ok(Self {
            parameters: parameters.tcp,
            results: results.map_err(|error| broken("result", error))?,
            warnings: warnings.into_iter().map(warning).collect(),
        })
    }
}
