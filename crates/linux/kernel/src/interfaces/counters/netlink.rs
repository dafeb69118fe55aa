//! Listings by netlink, as raw messages: the counters in them are read by position, and newer kernels add to their end.
//!
//! Source: netlink(7), `Documentation/userspace-api/netlink/intro.rst`.

use std::io;

use netlink_sys::{Socket, SocketAddr};

/// `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER_BYTES: usize = 16;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_ROOT | NLM_F_MATCH`.
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// Times that a listing is begun anew when something changed while it was made.
const DUMP_TRIES: usize = 5;

/// Sends `body` as a request of type `kind` in `protocol` and gives the bodies of the answers.
///
/// # Errors
/// What the kernel says.
pub(crate) fn ask(protocol: isize, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    Ok(ask_for(protocol, kind, flags, body, usize::MAX, |_| true)?.found)
}

/// Some of the answers to a request.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Their bodies.
    pub(crate) found: Vec<Vec<u8>>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

/// As [`ask`], but keeps only those bodies of answers that `keep` wants, at most `most`, and then asks for no more.
///
/// # Errors
/// What the kernel says.
pub(crate) fn ask_for(
    protocol: isize,
    kind: u16,
    flags: u16,
    body: &[u8],
    most: usize,
    keep: impl Fn(&[u8]) -> bool,
) -> io::Result<Answers> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    let mut answers = Vec::new();
    for sequence in 1..=DUMP_TRIES as u32 {
        socket.send_to(&request(kind, flags, sequence, body), &SocketAddr::new(0, 0), 0)?;
        answers.clear();
        let mut interrupted = false;
        let mut done = false;
        while !done {
            let (bytes, _) = socket.recv_from_full()?;
            for message in messages(&bytes).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    // Both begin with the error's number, negative; an acknowledgement is error 0.
                    NLMSG_ERROR | NLMSG_DONE => {
                        let code = super::attributes::u32_at(message.body, 0).unwrap_or(0) as i32;
                        if code != 0 {
                            return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                        }
                        done = true;
                    }
                    _ if !keep(message.body) => {}
                    // What is left of the listing goes with the socket.
                    _ if answers.len() == most => return Ok(Answers { found: answers, is_cut: true }),
                    _ => answers.push(message.body.to_vec()),
                }
            }
        }
        if !interrupted {
            break;
        }
    }
    Ok(Answers { found: answers, is_cut: false })
}

/// A request as the kernel takes it.
pub(crate) fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    let acknowledge = if flags & NLM_F_DUMP == 0 { NLM_F_ACK } else { 0 };
    bytes.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | acknowledge | flags).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// One message out of a datagram.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages in a datagram, up to the first broken one.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(0..4)?.try_into().ok()?) as usize;
        let message = Message {
            kind: u16::from_ne_bytes(rest.get(4..6)?.try_into().ok()?),
            flags: u16::from_ne_bytes(rest.get(6..8)?.try_into().ok()?),
            sequence: u32::from_ne_bytes(rest.get(8..12)?.try_into().ok()?),
            body: rest.get(HEADER_BYTES..length)?,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_reads_back() {
        let bytes = request(18, NLM_F_DUMP, 7, &[1, 2, 3]);
        let message = messages(&bytes).next().unwrap();
        assert_eq!((message.kind, message.flags, message.sequence, message.body), (18, 0x301, 7, &[1, 2, 3][..]));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
        }
    }
}
