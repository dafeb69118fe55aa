//! The kinds of tests. A further kind adds a folder beside `udp` and `tcp`, and an arm to `open`.

use std::net::TcpStream;

use longhaul_session::{SessionError, TestParameters};

use crate::data::{Data, Opening};
use crate::rtt::{AnsweringData, ProbingData};
use crate::tcp::{self, TcpData};
use crate::udp::UdpData;

/// Opens the data part of the kind of test that `opening` plans, and begins to receive.
///
/// # Errors
/// What of the plan cannot be had here, with what to do.
pub(crate) fn open(opening: Opening<'_>) -> Result<Box<dyn Data>, SessionError> {
    Ok(match opening.plan.parameters.clone() {
        TestParameters::Udp(parameters) => Box::new(UdpData::open(opening, parameters)?),
        TestParameters::Tcp(parameters) => Box::new(TcpData::open(opening, parameters)?),
        TestParameters::Rtt(parameters) if opening.place.is_server() => {
            Box::new(AnsweringData::open(opening, &parameters)?)
        }
        TestParameters::Rtt(parameters) => Box::new(ProbingData::open(opening, parameters)?),
    })
}

/// Completes `parameters` by what the control connection tells of the path.
pub(crate) fn complete(parameters: &mut TestParameters, control: &TcpStream) {
    if let TestParameters::Tcp(parameters) = parameters {
        tcp::size_window(parameters, control);
    }
}
