//! Having a NIC stamp what passes it, and leaving it as it was.
//!
//! Source: `Documentation/networking/timestamping.rst` §3, `<linux/net_tstamp.h>`, `<linux/ethtool.h>` (`ethtool_ts_info`).

use std::io;

use crate::guard::{Changed, Claim, Setting};
use crate::link_ioctl::ask;

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

/// A NIC that stamps packets, for as long as this lives; then it is set back as it was ([`crate::guard`]).
#[derive(Debug)]
pub struct NicStamps(#[expect(dead_code, reason = "it is held")] Changed);

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
        let claim = Claim::of_stamps(link).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => NicStampsError::Busy { link: link.into() },
            _ => error(source),
        })?;
        // struct hwtstamp_config: flags, tx_type, rx_filter.
        let mut before = [0; 3];
        ask(link, SIOCGHWTSTAMP, &mut before).map_err(error)?;
        let sent = if support.sent_packets { SENT_ON } else { before[1] };
        let wanted = [before[0], sent, FILTER_ALL];
        let by_hand = format!("hwtstamp_ctl -i {link} -t {} -r {}", before[1], before[2]);
        let setting = Setting::of_driver(link, SIOCSHWTSTAMP, &before, &wanted, by_hand).map_err(error)?;
        let changed = Changed::apply(vec![setting], vec![claim]).map_err(|(_, source)| error(source))?;
        // The driver says what it really does.
        let mut now = [0; 3];
        ask(link, SIOCGHWTSTAMP, &mut now).map_err(error)?;
        if now[2] == FILTER_ALL { Ok(Self(changed)) } else { Err(NicStampsError::Unsupported { link: link.into() }) }
    }
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
