//! [`Destination`]: remote addresses by prefix.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Remote addresses: `203.0.113.0/24`, `2001:db8::/32`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    address: IpAddr,
    length: u8,
}

/// It is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is neither an address nor a prefix such as 203.0.113.0/24 or 2001:db8::/32, with zeros beyond its length"
)]
pub struct BadDestination {
    /// What was given.
    pub text: String,
}

impl Destination {
    /// Address and mask in network byte order, as IPv6; IPv4 as `::ffff:a.b.c.d`.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(super) fn words(&self) -> ([u32; 4], [u32; 4]) {
        let (address, length) = self.mapped();
        (words(address.to_bits()), words(mask(length)))
    }

    fn mapped(&self) -> (Ipv6Addr, u8) {
        match self.address {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), self.length + 96),
            IpAddr::V6(address) => (address, self.length),
        }
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn words(bits: u128) -> [u32; 4] {
    let bytes = bits.to_be_bytes();
    std::array::from_fn(|word| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[4 * word + byte])))
}

impl FromStr for Destination {
    type Err = BadDestination;

    fn from_str(text: &str) -> Result<Self, BadDestination> {
        let bad = || BadDestination { text: text.into() };
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(most), str::parse).map_err(|_| bad())?;
        let destination = Self { address, length };
        if length > most || destination.mapped().0.to_bits() & !mask(destination.mapped().1) != 0 {
            return Err(bad());
        }
        Ok(destination)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_and_written() {
        for text in ["203.0.113.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "192.0.2.7/32"] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.7".parse::<Destination>().unwrap().to_string(), "192.0.2.7/32");
        for wrong in ["", "203.0.113.1/24", "203.0.113.0/33", "2001:db8::/129", "host", "1.2.3.4/x", "1.2.3.4/-1"] {
            assert!(wrong.parse::<Destination>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_in_network_byte_order() {
        let (address, mask) = "203.0.113.0/24".parse::<Destination>().unwrap().words();
        let bytes = |words: [u32; 4]| words.map(u32::to_ne_bytes).concat();
        assert_eq!(bytes(address), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 203, 0, 113, 0]);
        assert_eq!(bytes(mask), [[255; 15].as_slice(), &[0]].concat());
        assert_eq!("::/0".parse::<Destination>().unwrap().words(), ([0; 4], [0; 4]));
    }
}
