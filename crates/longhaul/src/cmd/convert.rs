//! `longhaul convert`.
use crate::output::Outcome;
/// x
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_args: Args) -> Outcome { todo!() }
