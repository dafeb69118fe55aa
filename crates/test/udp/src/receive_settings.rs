//! Settings of the receiving interface that shape when packets arrive.

use longhaul_terms::{ParameterError, bounded_list, check_range};
use serde::{Deserialize, Deserializer, Serialize};

/// Most CPUs of interrupts that can be asked for, and that a host can have.
const MAX_CPUS: usize = 64;
const MAX_CPUS_OF_HOST: usize = 8192;

/// Settings of the receiving interface. In a test's parameters: values to set for the time of the test, `null` for no change. In a result: the
/// values during the test, `null` for settings that the interface does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ReceiveSettings {
    /// The kernel joins received packets to super-packets (GRO).
    pub gro: Option<bool>,
    /// Polls without a packet that NAPI makes before it turns interrupts on again.
    pub napi_defer_hard_irqs: Option<u32>,
    /// Time between these polls, nanoseconds.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Packets that the receive ring holds.
    pub ring_packets: Option<u32>,
    /// The longest time from a received packet to its interrupt, microseconds.
    pub coalesce_us: Option<u32>,
    /// CPUs that take the interrupts.
    #[serde(deserialize_with = "cpus_of_host")]
    pub irq_cpus: Option<Vec<u32>>,
}

fn cpus_of_host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u32>>, D::Error> {
    #[derive(Deserialize)]
    struct Cpus(#[serde(deserialize_with = "bounded_list::<_, _, MAX_CPUS_OF_HOST>")] Vec<u32>);
    Ok(Option::<Cpus>::deserialize(deserializer)?.map(|Cpus(cpus)| cpus))
}

impl ReceiveSettings {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the limits that every longhaul has; a driver can have lower ones.
    ///
    /// # Errors
    /// The first setting out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        check_range("napi_defer_hard_irqs", self.napi_defer_hard_irqs, 0..=1_000, "0 to 1000 polls")?;
        // A packet may wait for so long.
        check_range("gro_flush_timeout_ns", self.gro_flush_timeout_ns, 0..=100_000_000, "0 to 100 ms")?;
        check_range("ring_packets", self.ring_packets, 1..=65_536, "1 to 65536 packets")?;
        check_range("coalesce_us", self.coalesce_us, 0..=100_000, "0 to 100 ms")?;
        match &self.irq_cpus {
            Some(cpus) if cpus.is_empty() || cpus.len() > MAX_CPUS || cpus.iter().any(|cpu| *cpu > 8191) => {
                let shown = cpus.iter().take(MAX_CPUS + 1);
                let given = shown.map(u32::to_string).collect::<Vec<_>>().join(",");
                Err(ParameterError::new("irq_cpus", given, format!("1 to {MAX_CPUS} CPUs, each 0 to 8191")))
            }
            _ => Ok(()),
        }
    }

    /// What of it can hold packets back or join them, in words; empty where nothing does.
    pub fn shaping(&self) -> String {
        let mut parts = Vec::new();
        parts.extend((self.gro == Some(true)).then(|| "GRO is on".to_owned()));
        parts.extend(self.coalesce_us.filter(|us| *us > 0).map(|us| format!("interrupts wait {us} us")));
        parts.extend(
            self.gro_flush_timeout_ns
                .filter(|ns| *ns > 0 && self.napi_defer_hard_irqs.is_some_and(|polls| polls > 0))
                .map(|ns| format!("NAPI polls each {} us", ns / 1_000)),
        );
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_said_in_part() {
        let asked = ReceiveSettings { irq_cpus: Some(vec![1; 8192]), ..ReceiveSettings::default() };
        assert_eq!(asked.validate().unwrap_err().given.len(), 2 * MAX_CPUS + 1);
    }

    /// A report has room for millions.
    #[test]
    fn a_host_has_so_many_cpus() {
        let read =
            |cpus: &str| serde_json::from_str::<ReceiveSettings>(&format!(r#"{{"gro":true,"irq_cpus":{cpus}}}"#));
        let many = |cpus: usize| format!("{:?}", vec![1; cpus]);
        assert_eq!(read(&many(2)).unwrap().irq_cpus, Some(vec![1, 1]));
        assert_eq!(read(&many(8192)).unwrap().irq_cpus.map(|cpus| cpus.len()), Some(8192));
        assert!(read(&many(8193)).unwrap_err().to_string().contains("at most 8192 elements"));
        assert_eq!(read("null").unwrap(), serde_json::from_str(r#"{"gro":true}"#).unwrap());
    }
}
