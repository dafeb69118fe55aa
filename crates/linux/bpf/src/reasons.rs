//! Names of drop reasons.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// What the numbers of `enum skb_drop_reason` mean on the running kernel. They are not ABI: each kernel has its own.
#[derive(Debug, Clone, Default)]
pub struct ReasonNames {
    names: BTreeMap<u32, String>,
}

impl ReasonNames {
    /// Of the names and numbers of the kernel's enum.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(crate) fn of<'a>(values: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let short = |name: &'a str| name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name).to_owned();
        Self { names: values.map(|(name, value)| (value, short(name))).collect() }
    }

    /// The number of the reason that [`ReasonNames::name`] calls `name`.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
    }

    /// The name of `reason` without its prefix, such as `SOCKET_RCVBUFF`; its number where the kernel core has no name for it. A
    /// subsystem (mac80211, Open vSwitch) has reasons of its own, with its number in the upper 16 bits.
    pub fn name(&self, reason: u32) -> Cow<'_, str> {
        match self.names.get(&reason) {
            Some(name) => Cow::Borrowed(name),
            None if reason >> 16 != 0 => Cow::Owned(format!("SUBSYSTEM_{}_REASON_{}", reason >> 16, reason & 0xffff)),
            None => Cow::Owned(format!("REASON_{reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_has_its_number() {
        let names = ReasonNames::of([("SKB_CONSUMED", 1), ("SKB_DROP_REASON_SOCKET_RCVBUFF", 6)].into_iter());
        assert_eq!(names.name(6), "SOCKET_RCVBUFF");
        assert_eq!(names.name(1), "SKB_CONSUMED");
        assert_eq!(names.name(7), "REASON_7");
        assert_eq!(names.name(3 << 16 | 9), "SUBSYSTEM_3_REASON_9");
    }
}
