//! Disks that the user named: what a program reads that sends, and what one writes that receives.

use longhaul_units::{BitRate, Bytes, Nanos};

use super::{Known, about};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};

/// How well the rate of a disk is known: of one pass over a file.
const SPREAD: f64 = 0.1;

pub(super) fn bounds<'a>(known: &'a Known<'_>) -> impl Iterator<Item = Bound> + 'a {
    known.evidence.disks.iter().filter(|disk| disk.bytes > 0 && disk.elapsed_ns > 0).map(|disk| {
        let bps = BitRate::of(disk.bytes, Nanos(disk.elapsed_ns)).0;
        let (verb, done) = if disk.host == Role::Sender { ("read", "read from") } else { ("written", "written into") };
        let cache = if disk.past_cache { ", past the page cache" } else { ", through the page cache, which may have helped" };
        let text = format!(
            "{} were {done} {} in {}{cache}: {}",
            Bytes(disk.bytes).rounded(),
            disk.path,
            Nanos(disk.elapsed_ns).rounded(),
            about(bps)
        );
        let command = match disk.host {
            Role::Sender => format!("dd if='{}' of=/dev/null bs=1M count=1000 iflag=direct", disk.path),
            Role::Receiver => format!("dd if=/dev/zero of='{}/test' bs=1M count=1000 oflag=direct conv=fdatasync", disk.path),
        };
        let (least, most) = ((bps as f64 * (1.0 - SPREAD)) as u64, (bps as f64 * (1.0 + SPREAD)) as u64);
        let bound_bps = if disk.past_cache { Interval::measured(least, most) } else { Interval::at_least(least) };
        Bound {
            code: Code::Disk,
            place: None,
            host: Some(disk.host),
            bound_bps,
            evidence: vec![Line::new(text, command)],
            remedies: vec![Remedy::new(
                Some(disk.host),
                format!("have the data {verb} faster: several files at a time, larger requests, another disk, or stripes over several"),
                "iostat -x 1",
            )],
        }
    })
}
