//! Arguments of `longhaul mesh run --coordinator` that are about its page.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the page is, and who may read it.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Page of the coordinator")]
pub(crate) struct PageOptions {
    /// Show a page, an interface for programs and metrics at this address: https, or http on loopback
    #[arg(long, value_name = "ADDRESS:PORT", requires = "coordinator")]
    pub(crate) http: Option<SocketAddr>,
    /// Use this certificate (PEM, with its chain) instead of one that the coordinator makes
    #[arg(long, value_name = "FILE", requires = "http", requires = "certificate_key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Use this private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) certificate_key: Option<PathBuf>,
    /// Let anybody read the page, without a token
    #[arg(long, requires = "http")]
    pub(crate) public: bool,
}
