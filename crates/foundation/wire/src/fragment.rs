//! Cutting an IPv4 packet for a link that carries only shorter ones, as a router does (RFC 791 §2.3 and §3.2).
//!
//! ```text
//! ┌──────────┬────────┬───────────────────────────────────┐
//! │ Ethernet │ IPv4   │ payload                           │
//! └──────────┴────────┴───────────────────────────────────┘
//! ┌──────────┬────────┬─────────────┐┌──────────┬────────┬────────────┐
//! │ Ethernet │ IPv4   │ 8·n bytes   ││ Ethernet │ IPv4   │ the rest   │   the offset counts units of eight bytes
//! └──────────┴────────┴─────────────┘└──────────┴────────┴────────────┘
//! ```

use crate::ethernet::{Frame, ether_type};
use crate::{be16, ipv4, put16};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Options: the end of the list, and one that does nothing (RFC 791 §3.1); the bit of those that every fragment has.
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const COPIED: u8 = 0x80;

/// A part of the payload of an IPv4 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Where it begins in that payload, bytes; a multiple of eight.
    pub offset: u32,
    /// Bytes of payload; a multiple of eight unless it is the last.
    pub bytes: u32,
}

/// Bytes from the beginning of a frame that begins with `headers` to the end of its IPv4 header, where a router may cut the packet; `None`
/// for other packets, and for those that say *don't fragment*. `total_bytes`: of the frame, where it is one packet; a frame that is longer or
/// shorter than its packet is not cut.
pub(crate) fn cut_behind(headers: &[u8], total_bytes: Option<usize>) -> Option<usize> {
    let network = Frame::new_checked(headers)?.network().filter(|network| network.ether_type == ether_type::IPV4)?;
    let bytes = headers.get(network.offset..)?;
    let ip = ipv4::Packet::new_checked(bytes)?;
    let is_whole = total_bytes.is_none_or(|total| total == network.offset + usize::from(ip.total_len()));
    let may = be16(bytes, 6) & DONT_FRAGMENT == 0 && is_whole;
    may.then_some(network.offset + ip.header_len())
}

/// The fragments of `part`, so that none is longer than `frame_bytes` with `header_bytes` before its payload. `None`: no fragment fits.
pub fn fragments(part: Fragment, header_bytes: u32, frame_bytes: u32) -> Option<impl Iterator<Item = Fragment>> {
    let room = frame_bytes.checked_sub(header_bytes)? & !7;
    let end = part.offset + part.bytes;
    let at = move |offset| Fragment { offset, bytes: room.min(end - offset) };
    (room > 0).then(|| (part.offset..end).step_by(room as usize).map(at))
}

/// Makes `frame`, a packet whose checksums are complete and whose IPv4 header ends at `header_bytes`, into its `fragment`. `None`: it is no such
/// packet, and stays as it is.
pub fn keep_fragment(frame: &mut Vec<u8>, header_bytes: usize, fragment: Fragment) -> Option<()> {
    let network = Frame::new_checked(&frame[..])?.network().filter(|network| network.ether_type == ether_type::IPV4)?;
    let header_len = header_bytes.checked_sub(network.offset)?;
    ipv4::Packet::new_checked(frame.get(network.offset..)?).filter(|ip| ip.header_len() == header_len)?;
    let payload = frame.len().checked_sub(header_bytes)?;
    let (from, bytes) = (fragment.offset as usize, fragment.bytes as usize);
    let to = from.checked_add(bytes).filter(|to| *to <= payload)?;
    frame.truncate(header_bytes + to);
    frame.drain(header_bytes..header_bytes + from);
    let ip = &mut frame[network.offset..];
    // A fragment that is cut again keeps its own place, and what follows it follows still.
    let field = be16(ip, 6);
    let offset = (field & OFFSET).wrapping_add((fragment.offset / 8) as u16);
    let more = if to < payload { MORE_FRAGMENTS } else { field & MORE_FRAGMENTS };
    put16(ip, 6, (field & !(MORE_FRAGMENTS | OFFSET)) | more | (offset & OFFSET));
    if from > 0 {
        // As Linux does: the header keeps its length.
        leave_out_options(&mut ip[ipv4::MIN_HEADER_LEN..header_len]);
    }
    let mut ip = ipv4::Packet::new_checked(ip)?;
    ip.set_total_len((header_len + bytes) as u16);
    ip.fill_checksum();
    Some(())
}

/// Puts no operation in the place of options that only the first fragment has.
fn leave_out_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let length = match kind {
            END_OF_OPTIONS => return,
            NO_OPERATION => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let end = (at + length).min(options.len());
        if kind & COPIED == 0 {
            options[at..end].fill(NO_OPERATION);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with an IPv4 packet of `payload` bytes that count up, options, and these flags and offset.
    fn frame(payload: usize, options: &[u8], field: u16) -> Vec<u8> {
        let header = 20 + options.len();
        let mut frame = vec![0; 14 + header];
        frame[12] = 8;
        frame[14] = 0x40 | (header / 4) as u8;
        frame[34..].copy_from_slice(options);
        put16(&mut frame, 20, field);
        put16(&mut frame, 16, (header + payload) as u16);
        ipv4::Packet::new_checked(&mut frame[14..]).unwrap().fill_checksum();
        frame.extend((0..payload).map(|at| at as u8));
        frame
    }

    fn cut(whole: &[u8], head: usize, frame_bytes: u32) -> Vec<Vec<u8>> {
        let part = Fragment { offset: 0, bytes: (whole.len() - head) as u32 };
        let all = fragments(part, head as u32, frame_bytes).unwrap().map(|fragment| {
            let mut one = whole.to_vec();
            keep_fragment(&mut one, head, fragment).unwrap();
            one
        });
        all.collect()
    }

    /// RFC 791 §3.2, example 3: 452 bytes of data, a maximum of 280.
    #[test]
    fn the_example_of_the_rfc() {
        let whole = frame(452, &[], 0);
        let parts = cut(&whole, 34, 14 + 280);
        let fields: Vec<_> = parts.iter().map(|part| (be16(part, 16), be16(part, 20))).collect();
        assert_eq!(fields, [(276, MORE_FRAGMENTS), (216, 32)]);
    }

    #[test]
    fn only_what_may_be_cut_is() {
        let may = |frame: &[u8]| cut_behind(frame, Some(frame.len()));
        assert_eq!(may(&frame(100, &[], 0)), Some(34));
        assert_eq!(may(&frame(100, &[0x94, 4, 0, 0], MORE_FRAGMENTS | 9)), Some(38));
        assert_eq!(may(&frame(100, &[], DONT_FRAGMENT)), None);
        let mut padded = frame(100, &[], 0);
        padded.push(0);
        assert_eq!(may(&padded), None);
        assert_eq!(may(&[0; 60]), None);
        assert_eq!(fragments(Fragment { offset: 0, bytes: 100 }, 34, 41).map(Iterator::count), None);
    }

    #[test]
    fn later_fragments_have_only_the_options_that_are_copied() {
        // Record route (7), router alert (148), no operation.
        let options = [7, 3, 4, 148, 4, 0, 0, 1];
        let parts = cut(&frame(300, &options, 0), 42, 14 + 28 + 160);
        assert_eq!((&parts[0][34..42], &parts[1][34..42]), (&options[..], &[1, 1, 1, 148, 4, 0, 0, 1][..]));
    }

    #[test]
    fn a_header_that_ends_elsewhere_is_refused() {
        let whole = frame(100, &[148, 4, 0, 0], 0);
        for end in (0..=whole.len() + 1).filter(|end| *end != 38) {
            let mut same = whole.clone();
            assert_eq!(keep_fragment(&mut same, end, Fragment { offset: 0, bytes: 0 }), None, "{end}");
            assert_eq!(same, whole);
        }
    }

    proptest! {
        /// Cut once, or each piece once more, the payload comes together again; every checksum holds.
        #[test]
        fn fragments_come_together(payload in 1_usize..4000, mtu in 68_u32..1600, again in 68_u32..1600, field in 0_u16..100) {
            let whole = frame(payload, &[], field | if field % 2 == 0 { MORE_FRAGMENTS } else { 0 });
            let pieces = cut(&whole, 34, mtu + 14).into_iter().flat_map(|piece| cut(&piece, 34, again + 14));
            let (mut bytes, mut more) = (Vec::new(), true);
            for piece in pieces {
                prop_assert!(more && piece.len() as u32 <= mtu.min(again) + 14);
                let place = usize::from(be16(&piece, 20) & OFFSET) * 8;
                prop_assert_eq!(place, bytes.len() + usize::from(field) * 8);
                prop_assert_eq!(usize::from(be16(&piece, 16)) + 14, piece.len());
                let mut same = piece.clone();
                ipv4::Packet::new_checked(&mut same[14..]).unwrap().fill_checksum();
                prop_assert_eq!(&same, &piece);
                more = be16(&piece, 20) & MORE_FRAGMENTS != 0;
                bytes.extend_from_slice(&piece[34..]);
            }
            prop_assert_eq!(&bytes[..], &whole[34..]);
            prop_assert_eq!(more, field % 2 == 0);
        }

        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), head in 0_usize..300, offset in 0_u32..300, length in 0_u32..300) {
            cut_behind(&bytes, None);
            keep_fragment(&mut bytes, head, Fragment { offset, bytes: length });
            // The bytes of an IPv4 packet, which random bytes hardly ever are.
            if bytes.len() > 34 {
                bytes[12..14].copy_from_slice(&[8, 0]);
                bytes[14] = 0x40 | bytes[14] & 0xf;
                keep_fragment(&mut bytes, head, Fragment { offset, bytes: length });
                let head = 14 + usize::from(bytes[14] & 0xf) * 4;
                keep_fragment(&mut bytes, head, Fragment { offset, bytes: length });
            }
        }
    }
}
