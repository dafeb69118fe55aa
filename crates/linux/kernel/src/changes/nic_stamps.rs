//! Having a NIC stamp what passes it, and leaving it as it was.
//!
//! Source: `Documentation/networking/timestamping.rst` §3, `<linux/net_tstamp.h>`, `<linux/ethtool.h>` (`ethtool_ts_info`).

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::guard::{Changed, Claim, Setting};
use crate::link::Netlink;
use crate::link_ioctl::{ask, index_of};
use crate::namespace::{NamespaceId, NetNamespace};
use crate::sysfs::Sysfs;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// `HWTSTAMP_FILTER_ALL`: stamp every packet that comes.
const FILTER_ALL: u32 = 1;
/// `HWTSTAMP_TX_ON`: stamp packets whose socket asks for it.
const SENT_ON: u32 = 1;

/// What a NIC can stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NicStampsSupport {
    /// It can stamp every packet that it receives. PTP packets alone are of no use here.
    pub every_received_packet: bool,
    /// It can stamp packets that it sends.
    pub sent_packets: bool,
    /// The number of its clock, `/dev/ptpN`; `None` where it has none.
    pub clock_index: Option<u32>,
}

/// Why a NIC does not stamp.
#[derive(Debug, thiserror::Error)]
pub enum NicStampsError {
    /// Its driver cannot.
    #[error("the NIC of {link} cannot stamp every packet (see `ethtool -T {link}`)")]
    Unsupported {
        /// The link.
        link: String,
    },
    /// The caller may not.
    #[error("no permission to turn on time stamps of the NIC of {link}: this needs CAP_NET_ADMIN; run as root")]
    Denied {
        /// The link.
        link: String,
    },
    /// Another test or capture has set it.
    #[error("another test or capture has the NIC of {link} stamp packets; wait for its end")]
    Busy {
        /// The link.
        link: String,
    },
    /// Something else.
    #[error("cannot have the NIC of {link} stamp packets: {source}")]
    Io {
        /// The link.
        link: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl NicStampsError {
    fn new(link: &str, source: io::Error) -> Self {
        let link = link.to_owned();
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ERANGE | libc::EINVAL) => Self::Unsupported { link },
            Some(libc::EPERM | libc::EACCES) => Self::Denied { link },
            _ => Self::Io { link, source },
        }
    }
}

/// What the NIC of `link` can stamp.
///
/// # Errors
/// [`NicStampsError::Unsupported`], [`NicStampsError::Io`].
pub fn nic_stamps_support(link: &str) -> Result<NicStampsSupport, NicStampsError> {
    // struct ethtool_ts_info: cmd, so_timestamping, phc_index, tx_types, 3 spare, rx_filters, 3 spare.
    let mut words = [0_u32; 11];
    words[0] = ETHTOOL_GET_TS_INFO;
    ask(link, SIOCETHTOOL, &mut words).map_err(|source| NicStampsError::new(link, source))?;
    let receives = words[1] & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0;
    Ok(NicStampsSupport {
        every_received_packet: receives && words[7] & (1 << FILTER_ALL) != 0,
        sent_packets: words[1] & libc::SOF_TIMESTAMPING_TX_HARDWARE != 0 && words[3] & (1 << SENT_ON) != 0,
        clock_index: (words[2] as i32 >= 0).then_some(words[2]),
    })
}

/// A NIC that stamps packets, for as long as this lives; then it is set back as it was ([`crate::guard`]). In one process several can be of one
/// NIC, as those of a VLAN and of the NIC below it: it is set back with the last of them.
#[derive(Debug)]
pub struct NicStamps(#[expect(dead_code, reason = "it is held")] Arc<Held>);

/// A NIC that was set.
#[derive(Debug)]
struct Held {
    reach: Reach,
    /// Fields are dropped in their order: this is undone before what was changed earlier.
    _changed: Changed,
    _earlier: Vec<Arc<Self>>,
}

/// What this process has set and not set back yet.
static HELD: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

/// The interfaces that may be set together: a driver without a clock, as that of a VLAN, hands what it is told down.
#[derive(Debug)]
struct Reach {
    namespace: Option<NamespaceId>,
    /// Their numbers: names may change.
    interfaces: Vec<u32>,
}

impl Reach {
    fn meets(&self, other: &Self) -> bool {
        self.namespace == other.namespace && other.interfaces.iter().any(|index| self.interfaces.contains(index))
    }
}

impl NicStamps {
    /// Has the NIC of `link` stamp every packet it receives, and packets that it sends where it can: those whose socket asks for it. It is
    /// so for all programs; where it was so already nothing changes.
    ///
    /// # Errors
    /// Any [`NicStampsError`].
    pub fn enable(link: &str) -> Result<Self, NicStampsError> {
        let error = |source| NicStampsError::new(link, source);
        let support = nic_stamps_support(link)?;
        if !support.every_received_packet {
            return Err(NicStampsError::Unsupported { link: link.into() });
        }
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|one| one.strong_count() > 0);
        let stack = stack(link);
        let namespace = NetNamespace::current().and_then(|own| own.id()).ok();
        let interfaces = stack.iter().map(|name| index_of(name)).collect::<io::Result<Vec<_>>>().map_err(error)?;
        let reach = Reach { namespace, interfaces };
        let earlier: Vec<_> = held.iter().filter_map(Weak::upgrade).filter(|one| one.reach.meets(&reach)).collect();
        let is_claimed = |index: &u32| earlier.iter().any(|one| one.reach.interfaces.contains(index));
        let free = stack.iter().zip(&reach.interfaces).filter(|(_, index)| !is_claimed(index));
        let claims = free.map(|(name, _)| Claim::of_stamps(name)).collect::<io::Result<Vec<_>>>();
        let claims = claims.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => NicStampsError::Busy { link: link.into() },
            _ => error(source),
        })?;
        // struct hwtstamp_config: flags, tx_type, rx_filter.
        let mut before = [0; 3];
        ask(link, SIOCGHWTSTAMP, &mut before).map_err(error)?;
        let sent = if support.sent_packets { SENT_ON } else { before[1] };
        let wanted = [before[0], sent, FILTER_ALL];
        let by_hand = format!("hwtstamp_ctl -i {link} -t {} -r {}", before[1], before[2]);
        let mut settings = Vec::new();
        if wanted != before {
            settings.push(Setting::of_driver(link, SIOCSHWTSTAMP, &before, &wanted, by_hand).map_err(error)?);
        }
        let changed = Changed::apply(settings, claims).map_err(|(_, source)| error(source))?;
        // The driver says what it really does.
        let mut now = [0; 3];
        ask(link, SIOCGHWTSTAMP, &mut now).map_err(error)?;
        if now[2] != FILTER_ALL {
            return Err(NicStampsError::Unsupported { link: link.into() });
        }
        let this = Arc::new(Held { reach, _changed: changed, _earlier: earlier });
        held.push(Arc::downgrade(&this));
        Ok(Self(this))
    }
}

/// `link` and the interfaces below it, as far as the caller may know them.
fn stack(link: &str) -> Vec<String> {
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).unwrap_or_default();
    Sysfs::of(&links).map_or_else(|_| vec![link.to_owned()], |sysfs| sysfs.stack(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_clock() {
        match nic_stamps_support("lo") {
            Ok(support) => assert_eq!(support, NicStampsSupport::default()),
            Err(error) => assert!(matches!(error, NicStampsError::Unsupported { .. }), "{error}"),
        }
        assert!(matches!(NicStamps::enable("lo"), Err(NicStampsError::Unsupported { .. })));
        assert!(matches!(nic_stamps_support("lhk-none"), Err(NicStampsError::Io { .. })));
    }
}
