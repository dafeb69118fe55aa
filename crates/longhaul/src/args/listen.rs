//! Where a command listens for other hosts, and who may come: `serve` and `log` alike.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use longhaul_channel::Key;

use crate::args::key;
use crate::output::Failure;

/// In a lab everyone is on the same machine.
const LAB_VARIABLE: &str = "LONGHAUL_LAB";

#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// Address to listen at [default: 127.0.0.1, in a lab all]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// The other end must have this key
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    key: Option<PathBuf>,
    /// Take anyone, unencrypted
    #[arg(long)]
    no_auth: bool,
}

/// What was asked for, and may be.
pub(crate) struct Listening {
    pub(crate) address: IpAddr,
    pub(crate) key: Option<Key>,
    /// Nobody comes who is not known: by the key, or as nobody else reaches the address.
    pub(crate) among_known: bool,
}

impl Listen {
    /// # Errors
    /// Where strangers could come and it was not said that they may; a key that cannot be read.
    pub(crate) fn check(&self) -> Result<Listening, Failure> {
        let in_lab = in_lab();
        let default = if in_lab { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::LOCALHOST.into() };
        let address = self.bind.unwrap_or(default);
        let key = self.key.as_deref().map(key::load).transpose()?;
        let among_known = key.is_some() || in_lab || address.is_loopback();
        if !among_known && !self.no_auth {
            return Err(Failure::usage(format!("--bind {address}: beyond loopback --key FILE is needed"))
                .remedy("make one with `longhaul key new FILE`, or say --no-auth at both ends"));
        }
        Ok(Listening { address, key, among_known })
    }
}

/// Why nobody can listen at `address`; `who` would be there already.
pub(crate) fn not_bound(address: SocketAddr, error: &io::Error, who: &str) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::AddrNotAvailable => {
            "name an address of this host (see `ip address`), or --bind 0.0.0.0 for all of them".to_owned()
        }
        ErrorKind::PermissionDenied => "choose another --port, above 1023, or run as root".to_owned(),
        _ => format!("is another {who} running there? choose another --port or --bind"),
    };
    Failure::new("not_bound", format!("cannot listen at {address}: {error}")).remedy(remedy)
}

/// Whether this process runs on a host of a lab.
pub(crate) fn in_lab() -> bool {
    std::env::var_os(LAB_VARIABLE).is_some()
}
