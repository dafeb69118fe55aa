//! TCP tests: a connection and a thread a flow, one thread that samples all of them, and evidence of where packets were dropped.

mod congestion;
mod connections;
mod counts;
mod data;
mod drops;
mod ending;
mod flow;
mod info;
mod pace;
mod receiving;
mod sampler;
mod sending;

use std::net::TcpStream;

use longhaul_tcp::fields;
use longhaul_tcp::{TcpParameters, WindowAuto};

pub(crate) use connections::{data_hello, hold_small};
pub(crate) use data::TcpData;
pub(crate) use ending::Ending;
use info::read_info;

/// A window holds at least a few segments, however short the path.
const LEAST_WINDOW: u64 = 64 << 10;

/// Computes the window of a test that asks for the size of the path. The control connection knows the path's round-trip time.
pub(crate) fn size_window(parameters: &mut TcpParameters, control: &TcpStream) {
    let Some(auto) = &mut parameters.window_auto else { return };
    let rtt_ns = read_info(control).map_or(0, |info| info.value(fields::RTT) * 1_000);
    *auto = WindowAuto { rtt_ns, ..*auto };
    parameters.window_bytes = Some(auto.window_bytes().max(LEAST_WINDOW));
}
