//! What goes wrong, and what to do about it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use longhaul_kernel::secret_file::SecretError;

/// An error for people: what happened, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    remedy: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), remedy: None }
    }

    pub(crate) fn remedy(mut self, remedy: impl fmt::Display) -> Self {
        self.remedy = Some(remedy.to_string());
        self
    }

    /// Nothing can listen at `address`. `occupied`: what to do where another program listens there.
    pub(crate) fn not_bound(address: impl fmt::Display, error: &io::Error, occupied: &str) -> Self {
        Self::new(format_args!("cannot listen at {address}: {error}")).remedy(match error.kind() {
            ErrorKind::AddrNotAvailable => {
                "give an address of this host (see `ip address`), or --bind 0.0.0.0 for all of IPv4, --bind :: for all of both"
            }
            ErrorKind::PermissionDenied => "use a port above 1023, or run as root",
            ErrorKind::AddrInUse => occupied,
            _ => "give another --bind",
        })
    }

    /// Of the secret at `path`, which is not taken.
    pub(crate) fn of_secret(path: &Path, error: &SecretError) -> Self {
        let failure = Self::new(format_args!("cannot read {}: {error}", path.display()));
        Self { remedy: error.remedy(path), ..failure }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

impl From<crate::store::StoreError> for Failure {
    fn from(error: crate::store::StoreError) -> Self {
        Self::new(format_args!("store: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    #[test]
    fn who_cannot_listen_is_told_what_to_do() {
        let said = |address: SocketAddr| {
            let error = TcpListener::bind(address).unwrap_err();
            Failure::not_bound(address, &error, "end the other one").to_string()
        };
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(said(other.local_addr().unwrap()).ends_with("; end the other one"));
        let foreign = said(SocketAddr::from(([192, 0, 2, 1], 0)));
        assert!(foreign.contains("192.0.2.1:0") && foreign.contains("`ip address`"), "{foreign}");
    }
}
