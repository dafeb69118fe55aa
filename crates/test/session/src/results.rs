//! What a test came to: the result of each direction that was tested, with every caveat that either end raised.

use crate::caveats;
use longhaul_result::Caveat;
use longhaul_tcp::TcpResult;
use longhaul_terms::{Directions, TestDirection};
use longhaul_udp::UdpResult;
use longhaul_udp::locate::Loss;

use crate::output::TestEnd;

/// Writes every loss of a direction to a file. Gets what the file's name ends with (`-forward` or `-backward` where both directions
/// were tested, else nothing) and the losses; returns the file's name, or why it could not be written.
pub type SaveLosses<'a> = dyn FnMut(&str, &mut dyn Iterator<Item = Loss>) -> Result<String, String> + 'a;

/// The results of a UDP test with all caveats. `save` keeps losses that are too many to list; without it they are a caveat.
/// `None` where an end's report lacks its part, or the test was not UDP.
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
                Some(Err(error)) => {
                    caveats.push(Caveat::new(caveats::LOSSES_NOT_SAVED, error, "make room, and run it again"))
                }
                None => caveats.push(Caveat::new(
                    caveats::LOSSES_NOT_LISTED,
                    "there are too many losses to list them in a result",
                    "save the result in a folder: every loss goes to a file there",
                )),
            }
        }
        caveats.append(&mut assembled.caveats);
        Some(assembled.result)
    })?;
    Some((results, Caveat::unique(caveats)))
}

/// The results of a TCP test, over IPv6 or not, with all caveats. `None` where an end's report lacks its part, or the test was not
/// TCP.
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

/// The caveats of the server's conditions and of either end.
fn of_both_ends(end: &TestEnd) -> Vec<Caveat> {
    let ends = [Some(&end.local), end.remote.as_ref()].into_iter().flatten();
    end.caveats.iter().chain(ends.flat_map(|end| &end.caveats)).cloned().collect()
}
