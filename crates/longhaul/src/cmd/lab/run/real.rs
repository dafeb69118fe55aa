//! `longhaul lab run X --server HOST`: the tests of an experiment between this host and another one, without a lab.

use std::path::PathBuf;

use longhaul_experiment::{Experiment, Plan};
use longhaul_peer::client::{self, Target, reachable, resolve};

use crate::args::key;
use crate::args::listen::in_lab;
use crate::cmd::serve::PORT;
use crate::output::Failure;

/// Options for real hosts.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Real hosts in place of labs")]
pub(super) struct RealArgs {
    /// Make no lab: test between this host and HOST, where `longhaul serve` runs
    ///
    /// Points that need settings of the path or of the hosts are left out.
    #[arg(long, value_name = "HOST", conflicts_with = "full")]
    server: Option<String>,
    /// Connect to this port of HOST
    #[arg(long, value_name = "PORT", default_value_t = PORT, requires = "server")]
    port: u16,
    /// Authenticate and encrypt with this key; HOST needs the same one
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth", requires = "server")]
    key: Option<PathBuf>,
    /// Test without encryption, with a server that does the same
    #[arg(long, requires = "server")]
    no_auth: bool,
}

impl RealArgs {
    /// The server's name, if there is one.
    pub(super) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The server, if there is one.
    pub(super) fn target(&self) -> Result<Option<Target>, Failure> {
        let Some(host) = &self.server else { return Ok(None) };
        let addresses = resolve(host, self.port, None)?;
        let key = self.key.as_deref().map(key::load).transpose()?;
        let is_other = addresses.iter().any(|address| !address.ip().is_loopback());
        if key.is_none() && !self.no_auth && is_other && !in_lab() {
            return Err(Failure::usage(format!("--server {host}: a test with another machine needs --key FILE"))
                .remedy(
                    "make a key with `longhaul key new FILE` and copy it to both hosts, or use --no-auth at both",
                ));
        }
        let target = Target::at(addresses[0], key);
        let address = reachable(&addresses, target.source, None, client::serve)?;
        Ok(Some(Target { address, ..target }))
    }
}

/// What of `experiment` does not hold between real hosts, and what of it is left out by `plan`, in a sentence each.
pub(super) fn differs(experiment: &Experiment, plan: &Plan, host: &str) -> String {
    let mut said = vec![format!(
        "This was measured between this host and {host}, over the real path between them. The path of the experiment ({}) and its changes do not apply.",
        experiment.path.name
    )];
    let left_out = plan.left_out();
    if !left_out.is_empty() {
        said.push(format!(
            "Left out, as they need a lab, or are the same test as another point: {}.",
            left_out.join("; ")
        ));
    }
    said.join(" ")
}
