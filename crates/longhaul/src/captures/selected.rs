//! Which packets of captures count: the arguments.

use crate::captures::moment::Moment;
use crate::captures::source::{End, Filter};

/// A part of captures.
#[derive(Debug, clap::Args)]
pub(crate) struct Selected {
    /// Read only packets of this endpoint, or between these two
    #[arg(long, value_name = "ADDRESS[:PORT]", value_delimiter = ',', num_args = 1..=2)]
    pub(crate) flow: Vec<End>,
    /// Read only packets from or to this port
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Read only packets from this time on: 2026-11-24T10:15:00Z, 10:15 on the day of the first packet, or +90s after it
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// Read only packets before this time, given as with --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
}

impl Selected {
    pub(crate) fn filter(&self) -> Filter {
        Filter { ends: self.flow.clone(), port: self.port, from: self.from, to: self.to, ..Filter::default() }
    }
}
