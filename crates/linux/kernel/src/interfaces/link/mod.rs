//! Links, addresses, neighbours, routes and queueing disciplines through rtnetlink, one request after the other.
//!
//! A [`Netlink`] belongs to the network namespace that the thread was in when it opened it, wherever it is used later.
//! Link indices are positive and unique in one namespace only.
//!
//! Source: rtnetlink(7), netlink(7), `Documentation/userspace-api/netlink/intro.rst`.

mod addressing;
mod default_route;
mod links;
mod local;
mod qdiscs;
mod routes;
mod veth;

pub use addressing::{Address, Neighbour, NeighbourState};
pub use default_route::holds_default_route;
pub use links::{Link, LinkStats};
pub use local::Changes;
pub use qdiscs::RootQdisc;
pub use routes::{NextHop, Route, RouteOwner};
pub use veth::VethEnd;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Times that a listing is begun anew when something changed while it was made.
const DUMP_TRIES: usize = 5;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The caller may not.
    #[error(
        "no permission to {action}: this needs CAP_NET_ADMIN over the network namespace; run as root, or in a user \
         namespace of your own"
    )]
    Denied {
        /// What was being done.
        action: String,
    },
    /// There is no such interface in this network namespace.
    #[error("cannot {action}: no such interface in this network namespace")]
    NoSuchLink {
        /// What was being done.
        action: String,
    },
    /// There is one already.
    #[error("cannot {action}: it exists already")]
    Exists {
        /// What was being done.
        action: String,
    },
    /// The kernel refused, and may have said why.
    #[error("cannot {action}: {source}{}", if reason.is_empty() { String::new() } else { format!(" ({reason})") })]
    Refused {
        /// What was being done.
        action: String,
        /// The kernel's own words (extended acknowledgement); often empty.
        reason: String,
        /// The error's number.
        source: io::Error,
    },
    /// What the kernel answered is not understood.
    #[error("cannot {action}: the kernel's answer is not understood: {problem}")]
    Answer {
        /// What was being done.
        action: String,
        /// What was wrong with it.
        problem: String,
    },
}

/// A conversation with the kernel about one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens one about the calling thread's network namespace. Needs no rights; some of the requests do.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn open() -> Result<Self, LinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            // Both only make errors clearer (Linux 4.12).
            let _ = socket.set_ext_ack(true);
            let _ = socket.set_cap_ack(true);
            Ok(socket)
        };
        let socket = open().map_err(|source| LinkError::Refused {
            action: "open a netlink socket".into(),
            reason: String::new(),
            source,
        })?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Has `message` done; `flags` beside request and acknowledge.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16, action: &str) -> Result<(), LinkError> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags, action)?;
        self.answers(action, false, usize::MAX).map(|_| ())
    }

    /// The one object that `message` asks for.
    fn ask(&mut self, message: RouteNetlinkMessage, action: &str) -> Result<RouteNetlinkMessage, LinkError> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK, action)?;
        let (mut objects, _) = self.answers(action, false, usize::MAX)?;
        objects.pop().ok_or_else(|| LinkError::Answer { action: action.into(), problem: "it is empty".into() })
    }

    /// All objects of the kind that `message` asks for. Answers of a newer kernel that cannot be parsed
    /// are left out.
    fn dump(&mut self, message: RouteNetlinkMessage, action: &str) -> Result<Vec<RouteNetlinkMessage>, LinkError> {
        self.dump_first(usize::MAX, message, action)
    }

    /// The first `most` of them. Where there are more, nothing can be listed by this socket any more: the kernel has not ended this listing.
    fn dump_first(
        &mut self,
        most: usize,
        message: RouteNetlinkMessage,
        action: &str,
    ) -> Result<Vec<RouteNetlinkMessage>, LinkError> {
        for _ in 0..DUMP_TRIES {
            self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP, action)?;
            let (objects, interrupted) = self.answers(action, true, most)?;
            if !interrupted || objects.len() >= most {
                return Ok(objects);
            }
        }
        Err(LinkError::Answer { action: action.into(), problem: format!("it changed {DUMP_TRIES} times meanwhile") })
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16, action: &str) -> Result<(), LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map_err(|source| refused(action, source, &[]))?;
        Ok(())
    }

    /// Reads until the kernel acknowledged the last request or ended its listing; `true` where the listing was interrupted
    /// by a change. Does not go on after `most` objects.
    fn answers(
        &mut self,
        action: &str,
        dump: bool,
        most: usize,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool), LinkError> {
        let mut objects = Vec::new();
        let mut interrupted = false;
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(|source| refused(action, source, &[]))?;
            let mut rest = &bytes[..];
            while let Some((length, flags, sequence)) = message_header(rest) {
                let (one, after) = rest.split_at(length);
                // Messages are aligned to four bytes.
                rest = &after[(length.next_multiple_of(4) - length).min(after.len())..];
                if sequence != self.sequence {
                    // What is left of a request that failed half-way.
                    continue;
                }
                interrupted |= flags & NLM_F_DUMP_INTR != 0;
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one).map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(object)) => {
                        objects.push(object);
                        if objects.len() >= most {
                            return Ok((objects, interrupted));
                        }
                    }
                    Ok(NetlinkPayload::Done(done)) if done.code == 0 => return Ok((objects, interrupted)),
                    Ok(NetlinkPayload::Done(done)) => {
                        return Err(refused(action, io::Error::from_raw_os_error(-done.code), &[]));
                    }
                    Ok(NetlinkPayload::Error(error)) => match error.code {
                        None => return Ok((objects, interrupted)),
                        Some(code) => {
                            return Err(refused(action, io::Error::from_raw_os_error(-code.get()), &error.header));
                        }
                    },
                    Ok(NetlinkPayload::Noop) => {}
                    Ok(other) => {
                        return Err(LinkError::Answer { action: action.into(), problem: format!("{other:?}") });
                    }
                    Err(_) if dump => {}
                    Err(error) => return Err(LinkError::Answer { action: action.into(), problem: error.to_string() }),
                }
            }
        }
    }
}

/// Length, flags and sequence number of the first message in `bytes`; `None` where there is no whole one.
///
/// ```text
///   0        4      6       8          12     16
///   | length | type | flags | sequence | port |   all in the host's byte order
/// ```
fn message_header(bytes: &[u8]) -> Option<(usize, u16, u32)> {
    let length = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?) as usize;
    let flags = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    (length >= 16 && length <= bytes.len()).then_some((length, flags, sequence))
}

/// `echo` is what came behind the error's number.
fn refused(action: &str, source: io::Error, echo: &[u8]) -> LinkError {
    let action = action.to_owned();
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LinkError::Denied { action },
        Some(libc::ENODEV | libc::ENXIO) => LinkError::NoSuchLink { action },
        Some(libc::EEXIST) => LinkError::Exists { action },
        _ => LinkError::Refused { action, reason: reason(echo), source },
    }
}

/// The kernel's words: attribute 1 (`NLMSGERR_ATTR_MSG`) behind the 16 bytes of the request's own header.
fn reason(echo: &[u8]) -> String {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    let mut rest = echo.get(16..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (rest.get(0..2), rest.get(2..4)) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let kind = u16::from_ne_bytes([kind[0], kind[1]]);
        let Some(value) = rest.get(4..length) else { break };
        if kind == NLMSGERR_ATTR_MSG {
            return String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_found() {
        let mut echo = vec![0; 16];
        echo.extend_from_slice(&8_u16.to_ne_bytes());
        echo.extend_from_slice(&2_u16.to_ne_bytes());
        echo.extend_from_slice(&[0; 4]);
        echo.extend_from_slice(&11_u16.to_ne_bytes());
        echo.extend_from_slice(&1_u16.to_ne_bytes());
        echo.extend_from_slice(b"no way\0");
        assert_eq!(reason(&echo), "no way");
        assert_eq!(reason(&echo[..20]), "");
        assert_eq!(reason(&[]), "");
    }

    #[test]
    fn half_a_message_is_none() {
        assert_eq!(message_header(&[16, 0, 0, 0]), None);
        assert_eq!(message_header(&[0; 16]), None);
        let mut whole = [0_u8; 20];
        whole[0..4].copy_from_slice(&20_u32.to_ne_bytes());
        whole[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(message_header(&whole), Some((20, 0, 7)));
    }

    #[test]
    fn the_loopback_link_is_there() {
        let mut netlink = Netlink::open().unwrap();
        let loopback = netlink.link_by_name("lo").unwrap();
        assert_eq!((loopback.index, netlink.index_of("lo").unwrap()), (1, 1));
        assert!(netlink.links().unwrap().iter().any(|link| link.name == "lo"));
        assert!(matches!(netlink.link_by_name("lhk-none"), Err(LinkError::NoSuchLink { .. })));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = (reason(&bytes), message_header(&bytes));
        }
    }
}
