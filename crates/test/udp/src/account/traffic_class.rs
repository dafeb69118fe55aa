//! How many packets arrived with which TOS byte of IPv4 or traffic class of IPv6: DSCP (RFC 2474) in the upper six bits, ECN (RFC 3168) in the
//! lower two.

use longhaul_terms::bounded_list;
use serde::{Deserialize, Serialize};

/// There are so many bytes.
const MOST: usize = 256;

/// Packets by traffic class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct TrafficClasses(#[serde(deserialize_with = "bounded_list::<_, _, MOST>")] Vec<ClassPackets>);

/// Packets with one traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassPackets {
    /// The byte.
    pub traffic_class: u8,
    /// Packets, duplicates included.
    pub packets: u64,
}

impl TrafficClasses {
    /// So many packets more arrived with `traffic_class`.
    pub fn add(&mut self, traffic_class: u8, packets: u64) {
        match self.0.iter_mut().find(|class| class.traffic_class == traffic_class) {
            Some(class) => class.packets = class.packets.saturating_add(packets),
            None => self.0.push(ClassPackets { traffic_class, packets }),
        }
    }

    /// Adds those of another stream.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|class| self.add(class.traffic_class, class.packets));
    }

    /// Each class that arrived.
    pub fn iter(&self) -> impl Iterator<Item = ClassPackets> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_added_up_by_class() {
        let mut all = TrafficClasses::default();
        all.add(2, 3);
        let mut other = TrafficClasses::default();
        other.add(2, 4);
        other.add(0, 1);
        all.merge(&other);
        let packets: Vec<_> = all.iter().map(|class| (class.traffic_class, class.packets)).collect();
        assert_eq!(packets, [(2, 7), (0, 1)]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<TrafficClasses>(&text).unwrap(), all);
        let many = format!("[{}]", vec![r#"{"traffic_class":1,"packets":1}"#; 257].join(","));
        assert!(serde_json::from_str::<TrafficClasses>(&many).is_err());
    }
}
