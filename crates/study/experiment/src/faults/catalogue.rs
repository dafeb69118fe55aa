//! The faults that come with longhaul.

use super::spec::Fault;
use crate::spec::ExperimentError;

/// Name and text of each fault, from the files in `experiments/faults/`.
macro_rules! catalogue {
    ($($name:literal)*) => {
        /// Name and text.
        const KNOWN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../experiments/faults/", $name, ".toml")))),*];
    };
}

catalogue! {
    "ack-loss"
    "bbr-with-loss"
    "black-hole"
    "black-hole-silent"
    "bloat"
    "competing-flows"
    "competing-udp"
    "control-vegas"
    "corruption"
    "cpu-receiver"
    "cpu-sender"
    "dscp-rewritten"
    "duplication"
    "ecmp-member"
    "ecn-bleached"
    "ecn-marks"
    "fixed-buffer"
    "gro-off"
    "healthy"
    "healthy-fast"
    "healthy-reno"
    "loss"
    "loss-bursts"
    "loss-every"
    "loss-long"
    "loss-reno"
    "loss-short"
    "mss-clamp"
    "outages"
    "pair-buffers"
    "pair-corruption-send-buffer"
    "pair-mss-clamp-loss"
    "pair-policer-receive-buffer"
    "pair-receive-buffer-loss"
    "pair-send-buffer-shaper"
    "pair-sender-shaper-receive-buffer"
    "pair-slow-reader-loss"
    "pair-slow-writer-short-queue"
    "pair-stripped-sack-loss"
    "pair-stripped-window-scale-loss"
    "pair-udp-receive-buffer"
    "policer-each-flow"
    "policer-network"
    "policer-receiver"
    "policer-sender"
    "receive-autotuning-off"
    "receive-buffer"
    "receive-buffer-reverse"
    "receiver-firewall-loss"
    "receiver-ring"
    "reordering"
    "route-window"
    "sack-off"
    "send-buffer"
    "send-buffer-reverse"
    "sender-firewall-loss"
    "sender-shaper"
    "sender-shaper-deep"
    "sender-short-queue"
    "shaper"
    "short-queue"
    "slow-ack-path"
    "slow-reader"
    "slow-writer"
    "small-mtu-sender"
    "smaller-mtu"
    "stripped-sack"
    "stripped-timestamps"
    "stripped-window-scale"
    "timestamps-off"
    "tso-off"
    "window-scaling-off-receiver"
    "window-scaling-off-sender"
}

/// The text of the fault `name`.
fn text(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The fault `name`.
///
/// # Errors
/// There is none of that name.
pub fn find(name: &str) -> Result<Fault, ExperimentError> {
    let unknown = || {
        let known = || KNOWN.iter().map(|(known, _)| *known);
        let others = match longhaul_units::nearest(name, known()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", known().collect::<Vec<_>>().join(", ")),
        };
        ExperimentError::at(name.escape_debug(), format!("no fault is called so; {others}"))
    };
    let text = text(name).ok_or_else(unknown)?;
    parse(name, text)
}

/// All faults, healthy paths and pairs.
///
/// # Errors
/// Does not fail in practice: tests read them.
pub fn all() -> Result<Vec<Fault>, ExperimentError> {
    KNOWN.iter().map(|(name, text)| parse(name, text)).collect()
}

fn parse(name: &str, written: &str) -> Result<Fault, ExperimentError> {
    Fault::parse(name, written, &text).map_err(|error| error.in_file(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use longhaul_lab::LabSpec;

    use super::*;
    use crate::faults::making::{Doing, path};

    /// A file that is not listed would never run, and one that cannot be read would end every run.
    #[test]
    fn every_file_is_a_fault_of_the_catalogue() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../experiments/faults");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: BTreeSet<String> = names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
        let known: BTreeSet<String> = KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files, known);
        let faults = all().unwrap();
        let single = faults.iter().filter(|fault| !fault.is_pair() && !fault.is_healthy()).count();
        let pairs = faults.iter().filter(|fault| fault.is_pair()).count();
        assert!(single >= 40 && pairs >= 10, "{single} faults, {pairs} pairs");
    }

    /// The changes of each fault fit its path, and fixing it leaves none of them.
    #[test]
    fn every_path_can_be_made() {
        for fault in all().unwrap() {
            for rtt in fault.round_trips.clone() {
                let spec = &LabSpec::default();
                let made = |faulty| path(&Doing { fault: &fault, rtt, seed: 1, faulty, spec }).unwrap();
                let (faulty, fixed) = (made(true), made(false));
                assert_eq!(fixed.round_trip(), rtt, "{}", fault.name);
                assert_eq!(faulty == fixed, fault.making.change.is_empty(), "{}", fault.name);
            }
        }
    }

    /// `docs/reference/faults.md` lists what is wrong, what should be named, and which forms find it, as the files say.
    #[test]
    fn the_manual_lists_each_fault() {
        let single = |fault: &Fault| !fault.name.starts_with("pair-") && !fault.is_healthy();
        let rows = all().unwrap().into_iter().filter(single);
        let rows = rows.map(|fault| {
            let cause = fault.causes.first().map_or(String::new(), |cause| format!("`{}`", cause.code.name()));
            let forms: Vec<&str> = fault.found_by.iter().map(|form| form.name()).collect();
            format!("| `{}` | {} | {cause} | {} |\n", fault.name, fault.title, forms.join(", "))
        });
        let table: String = rows.collect();
        let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/faults.md");
        assert!(fs::read_to_string(manual).unwrap().contains(&table), "faults.md lacks this table:\n{table}");
    }

    #[test]
    fn a_pair_has_both_faults() {
        let pair = find("pair-buffers").unwrap();
        let (one, other) = (find("receive-buffer").unwrap(), find("send-buffer").unwrap());
        assert_eq!(pair.causes, [one.causes, other.causes].concat());
        assert_eq!(pair.making.server, one.making.server);
        assert_eq!(pair.making.client, other.making.client);
        assert!(pair.is_pair() && !pair.is_healthy() && find("healthy").unwrap().is_healthy());
    }
}
