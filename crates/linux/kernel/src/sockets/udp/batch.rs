//! Memory for datagrams that are sent together.

use std::mem;
use std::ops::Range;
use std::ptr;

use super::{DATAGRAMS_MOST, PAYLOAD_MOST_BYTES_V4};

/// Room for datagrams of one size, side by side, to be filled and sent again and again.
pub struct SendBatch {
    datagram_bytes: usize,
    bytes: Box<[u8]>,
    parts: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

// SAFETY: its pointers lead only into its own boxes.
unsafe impl Send for SendBatch {}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendBatch({} of {} B)", self.datagrams(), self.datagram_bytes)
    }
}

impl SendBatch {
    /// Room for `datagrams` datagrams (1 to [`DATAGRAMS_MOST`]) of `datagram_bytes` each (1 to 65,507), all zero.
    pub fn new(datagrams: usize, datagram_bytes: usize) -> Self {
        let count = datagrams.clamp(1, DATAGRAMS_MOST);
        let datagram_bytes = datagram_bytes.clamp(1, PAYLOAD_MOST_BYTES_V4);
        let no_part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: mmsghdr is pointers and integers, for which zero is a value.
        let no_message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            datagram_bytes,
            bytes: vec![0; count * datagram_bytes].into(),
            parts: vec![no_part; count].into(),
            messages: vec![no_message; count].into(),
        }
    }

    /// How many datagrams there is room for.
    pub fn datagrams(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of each datagram.
    pub fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// All datagrams, to be filled one after the other.
    pub fn datagrams_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.datagram_bytes)
    }

    /// The bytes of the datagrams in `range`, as [`UdpSender::send_segments`](super::UdpSender::send_segments) takes them.
    ///
    /// # Panics
    /// Where the batch has no such datagrams.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range.start * self.datagram_bytes..range.end * self.datagram_bytes]
    }

    /// Messages for the datagrams in `range`, for sendmmsg.
    pub(super) fn messages(&mut self, range: Range<usize>) -> &mut [libc::mmsghdr] {
        let range = range.start..range.end.min(self.parts.len());
        let chunks = self.bytes.chunks_exact_mut(self.datagram_bytes);
        for ((chunk, part), message) in chunks.zip(&mut self.parts).zip(&mut self.messages) {
            *part = libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        &mut self.messages[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_lie_side_by_side() {
        let mut batch = SendBatch::new(3, 4);
        for (number, datagram) in batch.datagrams_mut().enumerate() {
            datagram.fill(number as u8);
        }
        batch.datagrams_mut().nth(1).unwrap()[0] = 9;
        assert_eq!(batch.bytes(1..3), [9, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!((batch.datagrams(), batch.datagram_bytes()), (3, 4));
        assert_eq!(batch.messages(1..9).len(), 2);
        assert_eq!(SendBatch::new(10_000, 0).datagrams(), DATAGRAMS_MOST);
    }
}
