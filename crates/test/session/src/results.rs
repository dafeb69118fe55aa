//! The results of a test: one for each tested direction, with the caveats of both ends.

use longhaul_result::Caveat;
use longhaul_tcp::TcpResult;
use longhaul_terms::{Directions, TestDirection};
use longhaul_udp::UdpResult;
use longhaul_udp::locate::Loss;

use crate::caveats;
use crate::output::TestEnd;

/// Writes all losses of a direction to a file. Gets the suffix of the file's name (`-forward` or `-backward` if both directions
/// were tested, else empty) and the losses. Returns the file's name, or why it could not be written.
pub type SaveLosses<'a> = dyn FnMut(&str, &mut dyn Iterator<Item = Loss>) -> Result<String, String> + 'a;

/// The results of a UDP test with all caveats. `save` writes the losses to a file if they are too many to list; without it there is
/// a caveat. `None` if a report is incomplete, or the test was not UDP.
pub fn udp(end: &TestEnd, mut save: Option<&mut SaveLosses<'_>>) -> Option<(Directions<UdpResult>, Vec<Caveat>)> {
    let parameters = end.parameters.udp()?;
    let mut caveats = of_both_ends(end);
    let results = Directions::of(|backward| {
        let (sender, receiver) = end.direction(backward)?;
        let mut assembled = UdpResult::assemble(parameters, sender, receiver);
        if assembled.needs_losses_file {
            let ending = match (parameters.direction, backward) {
                (TestDirection::Bidirectional, false) => "-forward",
                (TestDirection::Bidirectional, true) => "-backward",
                _ => "",
            };
            match save.as_mut().map(|save| save(ending, &mut assembled.attribution.losses())) {
                Some(Ok(name)) => assembled.result.losses_file = Some(name),
                Some(Err(error)) => caveats.push(Caveat::new(
                    caveats::LOSSES_NOT_SAVED,
                    error,
                    "free disk space, then run the test again",
                )),
                None => caveats.push(Caveat::new(
                    caveats::LOSSES_NOT_LISTED,
                    "there are too many losses to list them in the result",
                    "save the result in a folder: a file there lists every loss",
                )),
            }
        }
        caveats.append(&mut assembled.caveats);
        Some(assembled.result)
    })?;
    Some((results, Caveat::unique(caveats)))
}

/// The results of a TCP test over IPv6 or IPv4, with all caveats. `None` if a report is incomplete, or the test was not TCP.
pub fn tcp(end: &TestEnd, ipv6: bool) -> Option<(Directions<TcpResult>, Vec<Caveat>)> {
    let parameters = end.parameters.tcp()?;
    let (local, remote) = (end.local.tcp.as_ref()?, end.remote.as_ref()?.tcp.as_ref()?);
    let mut caveats = of_both_ends(end);
    let results = Directions::of(|backward| {
        let (sender, receiver) = if backward { (remote, local) } else { (local, remote) };
        let mut assembled = TcpResult::assemble(parameters, ipv6, backward, sender, receiver)?;
        caveats.append(&mut assembled.caveats);
        Some(assembled.result)
    })?;
    Some((results, Caveat::unique(caveats)))
}

/// The caveats about the conditions at the server, and those of both ends.
fn of_both_ends(end: &TestEnd) -> Vec<Caveat> {
    let ends = [Some(&end.local), end.remote.as_ref()].into_iter().flatten();
    end.caveats.iter().chain(ends.flat_map(|end| &end.caveats)).cloned().collect()
}
