//! Becoming a process on a lab's host.

use longhaul_kernel::mounts::{self, MountError};
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::user_namespace::{self, UserNamespaceError};

use crate::control::Info;
use crate::plan::{HostPlan, hosts_file};

/// Why a program cannot be run on a host.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// There is no such host.
    #[error("no host `{name}` in lab `{lab}`, there are {hosts}")]
    NoHost {
        /// What was asked for.
        name: String,
        /// The lab.
        lab: String,
        /// What there is.
        hosts: String,
    },
    /// Its network.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The lab's user namespace.
    #[error(transparent)]
    User(#[from] UserNamespaceError),
    /// Its view of the file system.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// Moves this process, which must have one thread, to host `name` of the lab: its network, `/sys` of that network, an
/// `/etc/hosts` in which the lab's hosts have names, and CPUs that the emulator has not for itself. Returns the host.
///
/// # Errors
/// Any [`EnterError`]; after one but `NoHost` the process is half moved: end it.
pub fn enter(info: &Info, name: &str) -> Result<HostPlan, EnterError> {
    let host = info.hosts.iter().find(|host| host.plan.is(name)).ok_or_else(|| EnterError::NoHost {
        name: name.to_owned(),
        lab: info.spec.name.clone(),
        hosts: info.hosts.iter().map(|host| host.plan.name.as_str()).collect::<Vec<_>>().join(", "),
    })?;
    // Opened before anything moves: another user namespace may not look into the process that holds the lab.
    let network = NetNamespace::open(&host.namespace)?;
    if info.user_namespace {
        user_namespace::enter_of_process(info.pid)?;
    }
    network.enter_for_good()?;
    info.spec.keep_off_the_emulator();
    mounts::private_mounts()?;
    // Most programs do not look at /sys, and in some containers it may not be mounted again.
    let _ = mounts::fresh_sysfs();
    let plans: Vec<HostPlan> = info.hosts.iter().map(|host| host.plan.clone()).collect();
    mounts::override_hosts(&hosts_file(&plans))?;
    Ok(host.plan.clone())
}
