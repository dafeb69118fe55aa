//! The queueing discipline at the root of a link.
//!
//! Source: tc(8), `net/sched/sch_api.c`.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::{LinkError, Netlink};

/// The queueing discipline at the root of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootQdisc {
    /// `fq`, `mq`, `noqueue`.
    pub kind: String,
    /// The number before the colon. 0: the kernel attached it, and attaches one like it when another one is removed.
    pub major: u16,
    /// Somebody put a queueing discipline below it, such as `tc qdisc replace dev eth0 parent :1 fq`: it goes with this one.
    pub has_children: bool,
}

impl Netlink {
    /// The queueing discipline at the root of link `index`; `None` where it has none (it was never set up).
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`].
    pub fn root_qdisc(&mut self, index: u32) -> Result<Option<RootQdisc>, LinkError> {
        // One without a handle cannot be asked for: all are.
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index as i32));
        let all = self.dump(message, "list queueing disciplines")?;
        let (mut root, mut has_children) = (None, false);
        for answer in all {
            let RouteNetlinkMessage::NewQueueDiscipline(message) = answer else { continue };
            let header = message.header;
            if header.index != index as i32 {
                continue;
            }
            if header.parent == TcHandle::ROOT {
                let kind = message.attributes.into_iter().find_map(|attribute| match attribute {
                    TcAttribute::Kind(kind) => Some(kind),
                    _ => None,
                });
                root = kind.map(|kind| (kind, header.handle.major));
            } else {
                // Those of the kernel have no number; clsact and ingress are of no queue.
                has_children |= header.handle.major != 0 && header.parent.major != u16::MAX;
            }
        }
        Ok(root.map(|(kind, major)| RootQdisc { kind, major, has_children }))
    }

    /// Puts a queueing discipline of `kind` with number `major` (1 to 0xffff; 0: the kernel chooses) at the root of link `index`, in the place
    /// of what is there. What that one holds is dropped.
    ///
    /// # Errors
    /// [`LinkError::Denied`], [`LinkError::NoSuchLink`], [`LinkError::Refused`] where the kernel lacks the kind.
    pub fn set_root_qdisc(&mut self, index: u32, kind: &str, major: u16) -> Result<(), LinkError> {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major, minor: 0 };
        message.attributes.push(TcAttribute::Kind(kind.into()));
        let action = format!("put {kind} at the root of interface {index}");
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE, &action)
    }

    /// Removes the queueing discipline at the root of link `index`; the kernel attaches the default one.
    ///
    /// # Errors
    /// [`LinkError::Denied`], [`LinkError::NoSuchLink`], [`LinkError::Refused`] where the default one is there.
    pub fn remove_root_qdisc(&mut self, index: u32) -> Result<(), LinkError> {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = TcHandle::ROOT;
        let action = format!("remove the queueing discipline of interface {index}");
        self.request(RouteNetlinkMessage::DelQueueDiscipline(message), 0, &action)
    }

    /// Gives the link a queue of its own, first in, first out (pfifo, of as many packets as its `txqueuelen` says), in the place of what is
    /// at its root. A link of memory alone, such as a veth, has none by itself and drops what its far end has no room for.
    ///
    /// # Errors
    /// [`LinkError::Denied`], [`LinkError::NoSuchLink`].
    pub fn set_root_queue(&mut self, index: u32) -> Result<(), LinkError> {
        self.set_root_qdisc(index, "pfifo", 0)
    }
}
