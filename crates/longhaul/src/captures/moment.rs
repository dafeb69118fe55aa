//! A time of a capture, as people give it.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use longhaul_units::Nanos;

/// A time of a capture, as the user gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A point in time.
    At(Timestamp),
    /// A local time without a zone.
    Local(civil::DateTime),
    /// A local time on the day of the first packet.
    OfDay(Time),
    /// So long after the first packet.
    After(Nanos),
}

impl Moment {
    /// Nanoseconds since 1970, of captures whose first packet has the time `first_ns`.
    pub(crate) fn ns(self, first_ns: i64) -> i64 {
        let ns = |at: Timestamp| i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
        let local = |at: civil::DateTime| at.to_zoned(TimeZone::system()).map_or(first_ns, |at| ns(at.timestamp()));
        match self {
            Self::At(at) => ns(at),
            Self::Local(at) => local(at),
            Self::OfDay(time) => {
                let first = Timestamp::from_nanosecond(first_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
                local(first.to_zoned(TimeZone::system()).date().to_datetime(time))
            }
            Self::After(time) => first_ns.saturating_add(i64::try_from(time.0).unwrap_or(i64::MAX)),
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(after) = text.strip_prefix('+') {
            return after.parse().map(Self::After).map_err(|error| format!("{error}"));
        }
        let at = text.parse().map(Self::At);
        let local = || text.parse().map(Self::Local);
        let of_day = || text.parse().map(Self::OfDay);
        // A date alone would be read as its midnight, and a number as an hour, which few mean.
        Some(at)
            .filter(|_| text.contains(':'))
            .and_then(|at| at.or_else(|_: jiff::Error| of_day()).or_else(|_| local()).ok())
            .ok_or_else(|| "give 2026-11-24T10:15:00Z, 10:15, 10:15:30.5, or +90s after the first packet".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24, 10:15:30 UTC.
    const FIRST_NS: i64 = 1_795_515_330_000_000_000;

    #[test]
    fn times_of_a_capture() {
        let ns = |text: &str| text.parse::<Moment>().unwrap().ns(FIRST_NS);
        assert_eq!(ns("2026-11-24T10:15:30Z"), FIRST_NS);
        assert_eq!(ns("2026-11-24T11:15:30.5+01:00"), FIRST_NS + 500_000_000);
        assert_eq!(ns("+90s"), FIRST_NS + 90_000_000_000);
        // Of the day of the first packet, wherever this runs.
        let first = Timestamp::from_nanosecond(FIRST_NS.into()).unwrap().to_zoned(TimeZone::system());
        assert_eq!(ns(&first.time().to_string()), FIRST_NS);
        assert_eq!(ns(&first.datetime().to_string()), FIRST_NS);
        for text in ["10", "2026-11-24", "yesterday", "", "25:00"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
