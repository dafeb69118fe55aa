//! Names of the kernel's functions, by address, out of `/proc/kallsyms`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// The kernel's functions in the order of their addresses.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    /// Address, and where its name ends in `names`; it begins where the one before ends.
    functions: Vec<(u64, u32)>,
    names: String,
}

impl Symbols {
    /// Those of the running kernel and its modules.
    ///
    /// Empty where the caller may not see addresses: that takes root (`CAP_SYSLOG`) and a `kernel.kptr_restrict` below 2.
    ///
    /// # Errors
    /// Where `/proc/kallsyms` cannot be read.
    pub fn read() -> io::Result<Self> {
        Self::parse(BufReader::with_capacity(1 << 16, File::open("/proc/kallsyms")?))
    }

    /// Lines such as `ffffffff81c0de50 t udp_queue_rcv_one_skb` or, of a module, `ffffffffc0a0b000 t ice_start_xmit [ice]`.
    fn parse(mut lines: impl BufRead) -> io::Result<Self> {
        let mut found: Vec<(u64, u32, u32)> = Vec::new();
        let mut unordered = String::new();
        let mut line = String::new();
        while lines.read_line(&mut line)? != 0 {
            if let Some((address, name)) = function(&line) {
                let start = unordered.len() as u32;
                unordered.push_str(name);
                found.push((address, start, unordered.len() as u32));
            }
            line.clear();
        }
        // Modules come after the kernel and lie elsewhere. Of aliases the first stays the first.
        found.sort_by_key(|(address, ..)| *address);
        let mut symbols =
            Self { functions: Vec::with_capacity(found.len()), names: String::with_capacity(unordered.len()) };
        for (address, start, end) in found {
            symbols.names.push_str(&unordered[start as usize..end as usize]);
            symbols.functions.push((address, symbols.names.len() as u32));
        }
        Ok(symbols)
    }

    /// The function in which `address` lies, without what the compiler put behind its name (`.isra.0`, `.constprop.0`, `.cold`).
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        // The first of several that begin at the same address.
        let (start, _) = *self.functions.get(after.checked_sub(1)?)?;
        let index = self.functions[..after].partition_point(|(other, _)| *other < start);
        let begin = index.checked_sub(1).map_or(0, |before| self.functions[before].1);
        let name = &self.names[begin as usize..self.functions[index].1 as usize];
        Some(name.split_once('.').map_or(name, |(name, _)| name))
    }

    /// Whether there are none: the kernel hides them from this caller.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}

/// Address and name of the function on a line. `None` for data, and for an address that is hidden.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    let is_function = matches!(words.next()?, "t" | "T" | "w" | "W");
    is_function.then_some((address, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _text
ffffffff81000100 t udp_queue_rcv_one_skb
ffffffff81000300 T __netif_receive_skb_core.constprop.0
ffffffff81000300 T an_alias
ffffffff81000400 d some_data
ffffffffc0a00000 t ice_start_xmit\t[ice]
ffffffff81000200 t veth_xmit
";

    #[test]
    fn an_address_lies_in_the_function_before_it() {
        let symbols = Symbols::parse(TEXT.as_bytes()).unwrap();
        let name = |address| symbols.name(address);
        assert_eq!(name(0xffff_ffff_8100_0100), Some("udp_queue_rcv_one_skb"));
        assert_eq!(name(0xffff_ffff_8100_01ff), Some("udp_queue_rcv_one_skb"));
        assert_eq!(name(0xffff_ffff_8100_0234), Some("veth_xmit"), "sorted by address");
        assert_eq!(name(0xffff_ffff_8100_0444), Some("__netif_receive_skb_core"), "the first name, its suffix cut");
        assert_eq!(name(0xffff_ffff_c0a0_0010), Some("ice_start_xmit"));
        assert_eq!(name(0x1000), None);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let symbols = Symbols::parse("0000000000000000 T _text\n".as_bytes()).unwrap();
        assert!(symbols.is_empty() && symbols.name(0).is_none());
    }
}
