//! A rejected frame as the program writes it: `struct filter_sample` in `intf.h`.

use super::Reason;

/// `SAMPLE_BYTES` in `intf.h`.
pub const SAMPLE_SNIPPET_BYTES: usize = 256;

/// The header snippet of a rejected frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSample {
    /// When, on `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Length of the whole frame, without FCS.
    pub frame_bytes: u32,
    /// Why it was rejected.
    pub reason: Reason,
    /// Its first [`SAMPLE_SNIPPET_BYTES`] bytes, or all.
    pub snippet: Vec<u8>,
}

impl FilterSample {
    /// Reads a sample; `None` where the bytes are none.
    #[cfg_attr(not(bpf_programs), allow(dead_code))]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (fixed, snippet) = bytes.split_first_chunk::<16>()?;
        let snippet_bytes = usize::from(u16::from_ne_bytes([fixed[12], fixed[13]]));
        Some(Self {
            at_ns: u64::from_ne_bytes(fixed[..8].try_into().ok()?),
            frame_bytes: u32::from_ne_bytes(fixed[8..12].try_into().ok()?),
            reason: Reason::of(fixed[14])?,
            snippet: snippet.get(..snippet_bytes)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_reads_back() {
        let mut bytes = vec![0; 16 + SAMPLE_SNIPPET_BYTES];
        bytes[0] = 7;
        bytes[8..12].copy_from_slice(&60_u32.to_ne_bytes());
        bytes[12..14].copy_from_slice(&2_u16.to_ne_bytes());
        bytes[14] = Reason::PortClosed as u8;
        bytes[16..18].copy_from_slice(&[0xab, 0xcd]);
        let sample = FilterSample { at_ns: 7, frame_bytes: 60, reason: Reason::PortClosed, snippet: vec![0xab, 0xcd] };
        assert_eq!(FilterSample::parse(&bytes), Some(sample));
        bytes[14] = 200;
        assert_eq!(FilterSample::parse(&bytes), None);
        assert_eq!(FilterSample::parse(&bytes[..15]), None);
    }
}
