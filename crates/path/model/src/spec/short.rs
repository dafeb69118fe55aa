//! The short text of a loss, a queue, a chance, as `lab set` and path files take it: reading it gives the same value.

use std::fmt::{self, Display};
use std::str::FromStr;

use longhaul_units::Nanos;

use super::{LossSpec, Probability, QueueLimit, value};

/// Digits behind the point of a percentage that are tried before the text becomes a plain number.
const PERCENT_DIGITS_MOST: usize = 9;

/// The usual text of a quantity where it says the same value, else `plain`.
pub(super) fn exact<T: Display + FromStr + PartialEq>(quantity: &T, plain: impl FnOnce() -> String) -> String {
    let short = quantity.to_string();
    if short.parse::<T>().is_ok_and(|read| read == *quantity) { short } else { plain() }
}

fn time(time: Nanos) -> String {
    exact(&time, || format!("{}ns", time.0))
}

impl Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |digits| format!("{:.digits$}%", self.0 * 100.0);
        let short = (0..=PERCENT_DIGITS_MOST).map(percent).find(|text| value::probability(text).as_ref() == Ok(self));
        f.pad(&short.unwrap_or_else(|| format!("{:e}", self.0)))
    }
}

impl FromStr for Probability {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        value::probability(text)
    }
}

impl Display for LossSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::None => "none".into(),
            Self::Random(chance) => format!("random({chance})"),
            Self::Every(count) => format!("every({count})"),
            Self::GilbertElliott { p, r, h: Probability(0.0), k: Probability(1.0) } => {
                format!("gilbert-elliott({p},{r})")
            }
            Self::GilbertElliott { p, r, h, k } => format!("gilbert-elliott({p},{r},{h},{k})"),
            Self::List(list) => format!("list({list})"),
            Self::Bursts(bursts) => {
                let (lasting, every) = (time(bursts.lasting), time(bursts.every));
                format!("bursts({lasting},{every},{},{})", bursts.lost, bursts.otherwise)
            }
        };
        f.pad(&text)
    }
}

impl FromStr for LossSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        value::loss(text.trim())
    }
}

impl Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Unlimited => "unlimited".into(),
            Self::Bytes(bytes) => exact(bytes, || format!("{}B", bytes.0)),
            Self::Packets(packets) => format!("{packets}p"),
        };
        f.pad(&text)
    }
}

impl FromStr for QueueLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        value::queue(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_they_were_read_from() {
        for text in [
            "none",
            "random(0.01%)",
            "random(7%)",
            "random(3.3333e-11)",
            "random(0%)",
            "every(30000)",
            "gilbert-elliott(0.1%,20%)",
            "gilbert-elliott(0.1%,20%,50%,99.99%)",
            "list(1,5,9-12)",
            "bursts(50ms,60s,90%,0%)",
        ] {
            assert_eq!(text.parse::<LossSpec>().map(|loss| loss.to_string()), Ok(text.into()));
        }
        for (alone, text) in [("0.01%", "random(0.01%)"), (".5", "random(50%)"), ("0", "none")] {
            assert_eq!(alone.parse::<LossSpec>().map(|loss| loss.to_string()), Ok(text.into()));
        }
        for text in ["unlimited", "1000p", "16MiB", "18750000B"] {
            assert_eq!(text.parse::<QueueLimit>().map(|queue| queue.to_string()), Ok(text.into()));
        }
        assert_eq!(
            "100ppm".parse::<Probability>().unwrap_err(),
            "`100ppm`: a probability is from 0 to 1, or 0% to 100%"
        );
    }
}
