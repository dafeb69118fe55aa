//! The form of every `--json`.

use serde::Serialize;

use crate::Caveat;

/// The result of a command with what it stands on, as every `--json` prints it.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Envelope<P, R, H = ()> {
    /// Name and version of this form, such as `longhaul.lab.status/1`.
    pub schema: &'static str,
    /// The version of longhaul that printed this.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[0-9]+\.[0-9]+\.[0-9]+")))]
    pub longhaul: &'static str,
    /// When the command began, in UTC, in the form of RFC 3339.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub started_at: String,
    /// What was asked.
    pub parameters: P,
    /// [`Hosts`] where a command has some.
    #[serde(flatten)]
    pub hosts: H,
    /// What was measured or done.
    pub result: R,
    /// Doubts about the result; empty if there are none.
    pub caveats: Vec<Caveat>,
}

/// The hosts of a result that has some.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hosts<H> {
    /// The hosts that took part, as `longhaul host` shows them.
    pub hosts: H,
}

impl<P, R> Envelope<P, R> {
    /// An envelope that names this version of longhaul: all crates share it.
    pub fn new(schema: &'static str, started_at: String, parameters: P, result: R, caveats: Vec<Caveat>) -> Self {
        Self { schema, longhaul: env!("CARGO_PKG_VERSION"), started_at, parameters, hosts: (), result, caveats }
    }

    /// With the hosts that took part.
    pub fn with_hosts<H>(self, hosts: H) -> Envelope<P, R, Hosts<H>> {
        let Self { schema, longhaul, started_at, parameters, hosts: (), result, caveats } = self;
        Envelope { schema, longhaul, started_at, parameters, hosts: Hosts { hosts }, result, caveats }
    }
}
