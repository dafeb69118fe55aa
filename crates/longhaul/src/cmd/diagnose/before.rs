//! `--before FILE|DIR`: an earlier diagnosis beside this one.

use std::path::Path;

use longhaul_diagnosis::{Before, Diagnosis};
use longhaul_report::saved::{Content, DiagnoseAsked, Saved};
use longhaul_terms::Directions;
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::output::Failure;
use crate::output::saved::{no_result, read_result};

/// An earlier diagnosis.
pub(super) struct Earlier {
    forward: Option<Diagnosis>,
    backward: Option<Diagnosis>,
    /// What was asked otherwise then: in words.
    differs: Vec<String>,
}

impl Earlier {
    fn of(&self, backward: bool) -> Option<&Diagnosis> {
        if backward { self.backward.as_ref() } else { self.forward.as_ref() }
    }

    /// That diagnosis beside the one of now.
    pub(super) fn beside(&self, backward: bool, now: &Diagnosis) -> Option<Before> {
        Some(Before { differs: self.differs.clone(), ..Before::of(self.of(backward)?, now) })
    }
}

/// Reads an earlier diagnosis of the directions that `now` asks for.
pub(super) fn earlier(path: &Path, now: &DiagnoseAsked, bidirectional: bool) -> Result<Earlier, Failure> {
    let (file, text) = read_result(path)?;
    let saved = Saved::parse(&text).map_err(|error| no_result(&file, error))?;
    let Content::Diagnose(then, results) = saved.content else {
        return Err(Failure::usage(format!("--before {}: not a result of longhaul diagnose", path.display())));
    };
    let differs = differences(&then, now);
    let earlier = match results {
        Directions::Both { forward, backward } => {
            Earlier { forward: Some(forward.diagnosis), backward: Some(backward.diagnosis), differs }
        }
        Directions::One(one) if then.reverse => Earlier { forward: None, backward: Some(one.diagnosis), differs },
        Directions::One(one) => Earlier { forward: Some(one.diagnosis), backward: None, differs },
    };
    let missing = [(!now.reverse, false), (now.reverse || bidirectional, true)]
        .into_iter()
        .any(|(wanted, backward)| wanted && earlier.of(backward).is_none());
    if missing {
        let what = if then.reverse { "with -R" } else { "without -R" };
        return Err(Failure::usage(format!("--before {}: that diagnosis was made {what}", path.display())));
    }
    if then.host != now.host {
        return Err(Failure::usage(format!("--before {}: that is of {}", path.display(), then.host.escape_debug())));
    }
    Ok(earlier)
}

/// What was asked otherwise, so that the goodputs may differ for that.
fn differences(then: &DiagnoseAsked, now: &DiagnoseAsked) -> Vec<String> {
    let rate = |bps: Option<u64>| bps.map_or("none".into(), |bps| BitRate(bps).to_string());
    let size = |bytes: Option<u64>| bytes.map_or("none".into(), |bytes| Bytes(bytes).to_string());
    let every = |ns: Option<u64>| ns.map_or("none".into(), |ns| Nanos(ns).to_string());
    let control = |name: &Option<String>| {
        name.as_ref().map_or_else(|| "the default".into(), |name| name.escape_debug().to_string())
    };
    let yes = |set: bool| String::from(if set { "given" } else { "none" });
    [
        ("--rate", rate(then.rate_bps), rate(now.rate_bps)),
        ("--congestion", control(&then.congestion_control), control(&now.congestion_control)),
        ("--size", size(then.size_bytes), size(now.size_bytes)),
        ("--every", every(then.every_ns), every(now.every_ns)),
        ("--gentle", yes(then.gentle), yes(now.gentle)),
    ]
    .into_iter()
    .filter(|(_, then, now)| then != now)
    .map(|(flag, then, now)| format!("{flag}: {then} then, {now} now"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_otherwise_is_said() {
        let asked = |rate_bps, control: Option<&str>| DiagnoseAsked {
            address: "10.0.0.1:5210".parse().unwrap(),
            host: "far".into(),
            reverse: false,
            rate_bps,
            time_ns: 60_000_000_000,
            size_bytes: None,
            every_ns: None,
            congestion_control: control.map(str::to_owned),
            gentle: false,
        };
        let then = asked(Some(1_000_000_000), None);
        assert_eq!(differences(&then, &asked(Some(1_000_000_000), None)), [""; 0]);
        let told = differences(&then, &asked(None, Some("bbr")));
        assert_eq!(told, ["--rate: 1Gbit then, none now", "--congestion: the default then, bbr now"]);
    }
}
