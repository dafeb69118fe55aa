//! The packets of two captures, matched: three passes over both, as neither is held in memory.

use std::path::PathBuf;

use longhaul_flows::compare::{
    Bounds, CompareError, Compared, FirstLook, MatchOptions, Matching, Plan, Reached, Sampler, recognition,
};

use crate::captures::progress::{Progress, pass};
use crate::captures::source::Trace;
use crate::output::Failure;

pub(crate) const LONGER_SNIPPETS: &str = "capture longer snippets, at least 66 bytes of IPv4 and 86 of IPv6, or send datagrams that differ in their first bytes";

/// Reads both captures three times: for the segments' sizes, for the clocks, and to match packets as they come. `first` are `paths` opened,
/// `again` opens them once more.
pub(crate) fn matched(
    paths: [&PathBuf; 2],
    same_clock: bool,
    again: impl Fn(&PathBuf) -> Result<Trace, Failure>,
    first: [&mut Trace; 2],
    each: impl FnMut(&Reached),
) -> Result<Compared, Failure> {
    let gaps = [first[0].gaps(), first[1].gaps()];
    let bounds = Bounds::for_bytes([first[0].file_bytes(), first[1].file_bytes()]).in_memory(first[0].memory_most());
    let mut looks = [FirstLook::new(bounds), FirstLook::new(bounds)];
    for (trace, look) in first.into_iter().zip(&mut looks) {
        pass(trace, |packet| look.packet(packet))?;
        trace.was_readable()?;
    }
    let known = recognition(looks);
    let mut samplers = Sampler::of_both(&known);
    for (path, sampler) in paths.into_iter().zip(&mut samplers) {
        pass(&mut again(path)?, |packet| sampler.packet(packet))?;
    }
    let plan = Plan::of(samplers, MatchOptions { same_clock }).map_err(|error| match error {
        CompareError::NothingInCommon => Failure::new("nothing_in_common", error)
            .remedy("for two different runs, test with compare --behaviour whether they are alike"),
        CompareError::AllAlike => Failure::new("all_alike", error).remedy(LONGER_SNIPPETS),
        CompareError::TooManyWirePackets(_) => Failure::new("too_many_wire_packets", error).remedy(
            "capture without super-packets (ethtool -K IF gro off tso off), or give shorter captures; compare also takes a part (--flow, --port)",
        ),
    })?;
    let mut matching = Matching::new(plan, &known, gaps, each);
    match_up(&mut again(paths[0])?, &mut again(paths[1])?, &mut matching)?;
    Ok(matching.finish())
}

/// Hands both captures' packets to `matching` in the order of time.
fn match_up<F: FnMut(&Reached)>(a: &mut Trace, b: &mut Trace, matching: &mut Matching<'_, F>) -> Result<(), Failure> {
    let mut shown = Progress::of(&[a.progress(), b.progress()]);
    let (mut first, mut second) = (a.next()?, b.next()?);
    loop {
        shown.packet();
        match (&first, &second) {
            (Some(one), Some(other)) if matching.b_is_next(one.at_ns, other.at_ns) => {
                matching.b(other);
                second = b.next()?;
            }
            (Some(one), _) => {
                matching.a(one);
                first = a.next()?;
            }
            (None, Some(other)) => {
                matching.b(other);
                second = b.next()?;
            }
            (None, None) => return Ok(()),
        }
    }
}
