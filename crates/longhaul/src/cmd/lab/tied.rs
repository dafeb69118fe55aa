//! A lab that ends with this process, however that ends.

use std::process::Command;

use longhaul_emulator::Status;
use longhaul_lab::LabSpec;
use longhaul_lab::control::{Client, ControlError, Info};
use longhaul_path::spec::PathSpec;

use super::control_failure;
use super::holder::{Holder, Order};
use crate::output::{Failure, say};

/// A lab that is up.
pub(crate) struct TiedLab {
    holder: Holder,
    client: Client,
    name: String,
    /// What it is.
    pub(super) info: Info,
}

impl TiedLab {
    /// Makes the lab of `spec` over `path`.
    pub(crate) fn up(spec: LabSpec, path: &PathSpec) -> Result<Self, Failure> {
        let name = spec.name.clone();
        let client = Client::new(&name).map_err(control_failure)?;
        super::clear_orphans(std::slice::from_ref(&name))?;
        let holder = Holder::start(&Order { spec, path: path.to_toml(), tied: true })?;
        let (holder, info) = holder.or_down(client.info().map_err(control_failure))?;
        Ok(Self { holder, client, name, info })
    }

    /// This program on a host: `arguments` follow `longhaul lab exec --name NAME HOST`.
    pub(crate) fn longhaul(&self, arguments: &[&str]) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["lab", arguments[0], "--name", &self.name]).args(&arguments[1..]);
        Ok(command)
    }

    /// Ends it; how exact it was, unless a program on it has ended it.
    pub(crate) fn down(self) -> Option<Status> {
        let status = match self.client.down() {
            Ok(status) => status,
            Err(ControlError::Refused(why)) => {
                say(why);
                None
            }
            Err(_) => None,
        };
        self.holder.wait();
        status
    }
}
