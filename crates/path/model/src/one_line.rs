//! A path in one line: a round trip, a rate, a loss and a queue, the same in both directions.

use std::str::FromStr;

use longhaul_units::{BitRate, Bytes, Nanos};

use crate::spec::value::nanos;
use crate::spec::{DELAY_MAX, HopSpec, Layer, LossSpec, PathSpec, QueueLimit, SpecError, shown};

/// Bytes of an Ethernet header (IEEE 802.3 §3.1.1).
const ETHERNET_HEADER_BYTES: u32 = 14;

/// What one line says of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct OneLine {
    /// The delay of both directions together; each has half of it.
    pub round_trip: RoundTrip,
    /// The rate of each direction, at L1; `None`: no limit, and nothing waits.
    pub rate: Option<BitRate>,
    /// Which packets each direction loses.
    pub loss: LossSpec,
    /// How much waits for the rate in each direction.
    pub queue: QueueSize,
}

/// A round trip, at most twice the longest delay of a hop. Its text has a unit, as `150` may mean ms or s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip(pub Nanos);

/// The size of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueSize {
    /// So many products of rate and round trip (`1bdp`), but at least one full packet, or none would pass.
    Products(f64),
    /// As path files say it.
    Limit(QueueLimit),
}

impl Default for QueueSize {
    /// One product: a window of twice that keeps the path full, and half of it after a loss does, too (Villamizar & Song 1994).
    fn default() -> Self {
        Self::Products(1.0)
    }
}

impl OneLine {
    /// The path called `name`, between hosts whose packets have `mtu_bytes` at most.
    ///
    /// # Errors
    /// Where a value is beyond what a path may have.
    pub fn path(&self, name: &str, mtu_bytes: u32) -> Result<PathSpec, SpecError> {
        let RoundTrip(round_trip) = self.round_trip;
        let there = Nanos(round_trip.0 / 2);
        let hop = |delay| HopSpec {
            loss: self.loss.clone(),
            queue: self.queue_limit(mtu_bytes),
            rate: self.rate,
            delay,
            ..HopSpec::default()
        };
        let forward = vec![hop(there)];
        let backward = vec![hop(round_trip.saturating_sub(there))];
        let path = PathSpec { name: name.to_owned(), forward, backward, ..PathSpec::default() };
        path.validate()?;
        Ok(path)
    }

    fn queue_limit(&self, mtu_bytes: u32) -> QueueLimit {
        match (self.queue, self.rate) {
            (_, None) => QueueLimit::Unlimited,
            (QueueSize::Limit(limit), Some(_)) => limit,
            (QueueSize::Products(products), Some(rate)) => {
                let packet = Layer::L1.bytes_of(mtu_bytes.saturating_add(ETHERNET_HEADER_BYTES));
                let bytes = rate.bytes_in(self.round_trip.0) as f64 * products;
                QueueLimit::Bytes(Bytes((bytes.round() as u64).max(packet.into())))
            }
        }
    }
}

impl FromStr for RoundTrip {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let most = Nanos(DELAY_MAX.0 * 2);
        let time = nanos(text)?;
        if time > most { Err(format!("{}: at most {most}", shown(text))) } else { Ok(Self(time)) }
    }
}

impl FromStr for QueueSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().strip_suffix("bdp") {
            Some(products) => match products.trim_end().parse::<f64>() {
                Ok(products) if products > 0.0 && products <= 1e6 => Ok(Self::Products(products)),
                _ => Err(format!("{}: use a number above 0 before bdp, such as 0.5bdp", shown(text))),
            },
            None => text.parse().map(Self::Limit).map_err(|why: String| format!("{why}, or 1bdp (rate × round trip)")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Direction;

    fn line(rtt: &str, rate: &str, loss: &str, queue: &str) -> PathSpec {
        let rate = (rate != "-").then(|| rate.parse().unwrap());
        let (loss, queue) = (loss.parse().unwrap(), queue.parse().unwrap());
        OneLine { round_trip: rtt.parse().unwrap(), rate, loss, queue }.path("try", 1500).unwrap()
    }

    /// 150 ms × 1 Gbit/s / 8 = 18,750,000 bytes.
    #[test]
    fn each_direction_has_half_of_the_round_trip_and_all_of_the_rest() {
        let path = line("150ms", "1G", "0.01%", "1bdp");
        assert_eq!(path.round_trip(), Nanos::from_millis(150));
        for direction in Direction::BOTH {
            let [hop] = path.hops(direction) else { panic!("{path:?}") };
            assert_eq!(hop.delay, Nanos::from_millis(75));
            assert_eq!(hop.queue, QueueLimit::Bytes(Bytes(18_750_000)));
            assert_eq!((hop.loss.to_string(), hop.rate), ("random(0.01%)".into(), Some(BitRate::from_gbit(1))));
        }
        assert_eq!(PathSpec::parse(&path.to_toml(), &crate::spec::no_files).unwrap(), path);
        assert_eq!(line("3ns", "-", "0", "1bdp").round_trip(), Nanos(3));
    }

    #[test]
    fn queues_are_products_bytes_or_packets() {
        let queue = |queue| line("100ms", "10Mbit", "none", queue).forward[0].queue.to_string();
        assert_eq!(
            ["2bdp", "0.5bdp", "64KiB", "100p", "unlimited"].map(queue),
            ["250000B", "62500B", "64KiB", "100p", "unlimited"]
        );
        // A queue of nothing would pass nothing but one packet at a time: 1500 + 14 + 24 bytes.
        assert_eq!(line("0", "1G", "none", "1bdp").forward[0].queue, QueueLimit::Bytes(Bytes(1538)));
        assert_eq!(line("10ms", "-", "none", "1bdp").forward[0].queue, QueueLimit::Unlimited);
    }

    #[test]
    fn what_may_mean_two_things_is_refused() {
        assert_eq!("150".parse::<RoundTrip>().unwrap_err(), "`150`: 150ms or 150s? write the unit");
        assert!("30s".parse::<RoundTrip>().unwrap_err().contains("at most 20s"));
        assert!("2%%".parse::<LossSpec>().unwrap_err().contains("probability"));
        assert!("often".parse::<LossSpec>().unwrap_err().contains("0.01%"));
        for wrong in ["0bdp", "-1bdp", "bdp", "much"] {
            assert!(wrong.parse::<QueueSize>().unwrap_err().contains("bdp"), "{wrong}");
        }
    }
}
