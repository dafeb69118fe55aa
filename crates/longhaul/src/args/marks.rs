//! `--tos` and `--dscp`: how routers are to treat the packets of a test.

/// The options.
#[derive(Debug, clap::Args)]
pub(crate) struct Marks {
    /// Set this TOS byte or traffic class, such as 0x28: DSCP AF11 (10) × 4; the lowest two bits are ECN's
    #[arg(short = 'S', long, value_name = "BYTE", default_value = "0", value_parser = byte)]
    tos: u8,
    /// Set this DSCP: a number from 0 to 63, or a name: af11 to af43, cs0 to cs7, ef, le, voice-admit
    #[arg(long, value_name = "DSCP", conflicts_with = "tos", value_parser = dscp)]
    dscp: Option<u8>,
}

impl Marks {
    /// The TOS byte or traffic class.
    pub(crate) fn traffic_class(&self) -> u8 {
        self.dscp.map_or(self.tos, |dscp| dscp << 2)
    }
}

/// A byte, as iperf3 takes it: decimal, or with 0x.
fn byte(text: &str) -> Result<u8, String> {
    let parsed =
        text.strip_prefix("0x").map_or_else(|| text.parse(), |hexadecimal| u8::from_str_radix(hexadecimal, 16));
    parsed.map_err(|_| "a byte, 0 to 255 or 0x00 to 0xff".into())
}

/// A DSCP by its number or its name (RFC 2474, 2597, 3246, 5865, 8622).
fn dscp(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_lowercase();
    let digits = |prefix: &str| name.strip_prefix(prefix).and_then(|digits| digits.parse::<u8>().ok());
    let number = match name.as_str() {
        "ef" => Some(46),
        "voice-admit" => Some(44),
        "le" => Some(1),
        // Class 1 to 4, drop precedence 1 to 3.
        _ if let Some(af) = digits("af") => {
            ((1..=4).contains(&(af / 10)) && (1..=3).contains(&(af % 10))).then(|| af / 10 * 8 + af % 10 * 2)
        }
        _ if let Some(class) = digits("cs") => (class < 8).then(|| class * 8),
        _ => name.strip_prefix("0x").map_or_else(|| name.parse().ok(), |digits| u8::from_str_radix(digits, 16).ok()),
    };
    number.filter(|dscp| *dscp < 64).ok_or_else(|| "0 to 63, or a name such as af11, cs1, ef, le".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_registry() {
        let known =
            [("ef", 46), ("EF", 46), ("af11", 10), ("af43", 38), ("cs0", 0), ("cs7", 56), ("le", 1), ("0x2e", 46)];
        for (name, number) in known {
            assert_eq!(dscp(name), Ok(number), "{name}");
        }
        for wrong in ["af44", "af10", "af51", "cs8", "64", "", "-1", "af", "af111"] {
            assert!(dscp(wrong).is_err(), "{wrong}");
        }
    }
}
