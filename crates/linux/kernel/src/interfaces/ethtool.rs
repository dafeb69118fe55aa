//! A link's driver: offload features, speed, name, counters; through the `SIOCETHTOOL` ioctl.
//!
//! Source: `<linux/ethtool.h>`, `Documentation/networking/netdev-features.rst`; names of features as `ethtool -k` prints
//! them come from the kernel itself (`ETH_SS_FEATURES`).

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

// Commands and string sets of <linux/ethtool.h>.
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const ETH_SS_STATS: u32 = 1;
const ETH_SS_FEATURES: u32 = 4;
/// `ETH_GSTRING_LEN`: each name has so many bytes, NUL at its end.
const NAME_BYTES: usize = 32;

/// Why a driver could not be asked or set.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// The name is longer than 15 bytes or empty.
    #[error("`{name}` is not an interface name: 1 to 15 bytes")]
    Name {
        /// What was given.
        name: String,
    },
    /// There is no such interface in this network namespace.
    #[error("no interface {link} in this network namespace")]
    NoSuchLink {
        /// The link.
        link: String,
    },
    /// The caller may not.
    #[error("no permission to {action} of {link}: this needs CAP_NET_ADMIN over its network namespace; run as root")]
    Denied {
        /// The link.
        link: String,
        /// What was being done.
        action: &'static str,
    },
    /// The driver has no such thing.
    #[error("the driver of {link} cannot {action}")]
    Unsupported {
        /// The link.
        link: String,
        /// What was being done.
        action: &'static str,
    },
    /// This kernel knows no feature of that name.
    #[error("{link}: this kernel knows no feature `{feature}`; `ethtool -k {link}` lists them")]
    UnknownFeature {
        /// The link.
        link: String,
        /// What was asked for.
        feature: String,
    },
    /// The driver keeps a feature as it is.
    #[error("{link}: the driver does not turn {} {features:?}", if *.on { "on" } else { "off" })]
    Fixed {
        /// The link.
        link: String,
        /// The features that did not change.
        features: Vec<String>,
        /// What they were to become.
        on: bool,
    },
    /// Something else.
    #[error("cannot {action} of {link}: {source}")]
    Io {
        /// The link.
        link: String,
        /// What was being done.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// One offload or other ability of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// As `ethtool -k` prints it: `tx-tcp-segmentation`, `rx-gro`.
    pub name: String,
    /// In force now.
    pub active: bool,
    /// What somebody asked for; not in force where something else forbids it.
    pub requested: bool,
    /// It can be changed.
    pub changeable: bool,
}

/// Who drives a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// `veth`, `mlx5_core`, …
    pub name: String,
    /// The driver's version, or the kernel's.
    pub version: String,
    /// The firmware's version; empty where there is none.
    pub firmware: String,
    /// Where it sits, such as a PCI address; empty for virtual links.
    pub bus: String,
}

/// A link's driver, in the network namespace that the thread was in when it opened this.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    link: String,
}

impl Ethtool {
    /// For the link named `link`. Whether it exists shows with the first question.
    ///
    /// # Errors
    /// [`EthtoolError::Name`], or where the process has no descriptor left.
    pub fn open(link: &str) -> Result<Self, EthtoolError> {
        if link.is_empty() || link.len() >= libc::IFNAMSIZ || link.contains('\0') {
            return Err(EthtoolError::Name { name: link.into() });
        }
        // Any socket will do; one that needs no IP.
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).map_err(|e| {
            EthtoolError::Io { link: link.into(), action: "open a socket to ask the driver", source: e.into() }
        })?;
        Ok(Self { socket, link: link.into() })
    }

    /// All features that the kernel knows, as they are on this link.
    ///
    /// # Errors
    /// [`EthtoolError::NoSuchLink`], [`EthtoolError::Unsupported`], [`EthtoolError::Io`].
    pub fn features(&self) -> Result<Vec<Feature>, EthtoolError> {
        let names = self.strings(ETH_SS_FEATURES, "list features")?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_gfeatures: cmd, size, then per 32 features: available, requested, active, never_changed.
        let mut words = vec![0_u32; 2 + 4 * blocks];
        words[0] = ETHTOOL_GFEATURES;
        words[1] = blocks as u32;
        self.ioctl(&mut words, "read features")?;
        let feature = |(i, name): (usize, String)| {
            let block = &words[2 + 4 * (i / 32)..][..4];
            let bit = |word: usize| block[word] & (1 << (i % 32)) != 0;
            Feature { name, changeable: bit(0) && !bit(3), requested: bit(1), active: bit(2) }
        };
        // Bits without a meaning have an empty name.
        Ok(names.into_iter().enumerate().map(feature).filter(|feature| !feature.name.is_empty()).collect())
    }

    /// Turns features on and off by name, all in one request, and looks whether it came so.
    ///
    /// # Errors
    /// [`EthtoolError::UnknownFeature`] before anything changed; [`EthtoolError::Fixed`] with the first kind that did not
    /// follow, the others being changed; [`EthtoolError::Denied`]; those of [`Ethtool::features`].
    pub fn set_features(&self, wanted: &[(&str, bool)]) -> Result<(), EthtoolError> {
        let names = self.strings(ETH_SS_FEATURES, "list features")?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_sfeatures: cmd, size, then per 32 features: valid, requested.
        let mut words = vec![0_u32; 2 + 2 * blocks];
        words[0] = ETHTOOL_SFEATURES;
        words[1] = blocks as u32;
        for &(feature, on) in wanted {
            let i = names
                .iter()
                .position(|name| name == feature)
                .ok_or_else(|| EthtoolError::UnknownFeature { link: self.link.clone(), feature: feature.into() })?;
            words[2 + 2 * (i / 32)] |= 1 << (i % 32);
            if on {
                words[3 + 2 * (i / 32)] |= 1 << (i % 32);
            }
        }
        match self.ioctl(&mut words, "set features") {
            // EINVAL: one of the features is none that anybody may change. Find out which.
            Ok(()) => {}
            Err(EthtoolError::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
        let now = self.features()?;
        for on in [false, true] {
            let features: Vec<String> = wanted
                .iter()
                .filter(|(name, wish)| *wish == on && now.iter().any(|f| f.name == *name && f.active != on))
                .map(|(name, _)| (*name).to_owned())
                .collect();
            if !features.is_empty() {
                return Err(EthtoolError::Fixed { link: self.link.clone(), features, on });
            }
        }
        Ok(())
    }

    /// The link's speed in Mbit/s; `None` where it has none now (down, virtual). A veth says 10,000 and means nothing by it.
    ///
    /// # Errors
    /// [`EthtoolError::NoSuchLink`], [`EthtoolError::Unsupported`], [`EthtoolError::Io`].
    pub fn speed_mbps(&self) -> Result<Option<u32>, EthtoolError> {
        let action = "tell the speed";
        // struct ethtool_link_settings has 12 words; behind them three masks of as many words as the kernel says, with a
        // minus sign, when asked with none (byte 15, link_mode_masks_nwords).
        let mut words = vec![0_u32; 12];
        words[0] = ETHTOOL_GLINKSETTINGS;
        let speed = match self.ioctl(&mut words, action) {
            Ok(()) => {
                let mask_words = -(words[3].to_ne_bytes()[3] as i8);
                let mut words = vec![0_u32; 12 + 3 * usize::try_from(mask_words).unwrap_or(0)];
                words[0] = ETHTOOL_GLINKSETTINGS;
                words[3] = u32::from_ne_bytes([0, 0, 0, mask_words as u8]);
                self.ioctl(&mut words, action)?;
                words[1]
            }
            // Before Linux 4.6: struct ethtool_cmd, 11 words, the speed's halves at bytes 12 and 28.
            Err(EthtoolError::Unsupported { .. }) => {
                let mut words = vec![0_u32; 11];
                words[0] = ETHTOOL_GSET;
                self.ioctl(&mut words, action)?;
                let half = |word: u32, at: usize| {
                    let bytes = word.to_ne_bytes();
                    u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
                };
                half(words[7], 0) << 16 | half(words[3], 0)
            }
            Err(error) => return Err(error),
        };
        // SPEED_UNKNOWN is −1, from old drivers in 16 bits.
        Ok((speed != u32::MAX && speed != u32::from(u16::MAX) && speed != 0).then_some(speed))
    }

    /// Who drives the link.
    ///
    /// # Errors
    /// [`EthtoolError::NoSuchLink`], [`EthtoolError::Unsupported`], [`EthtoolError::Io`].
    pub fn driver(&self) -> Result<Driver, EthtoolError> {
        // struct ethtool_drvinfo: cmd, five names of 32 bytes (driver, version, firmware, bus, ROM), 12 spare bytes, 5 counts.
        let mut words = vec![0_u32; 49];
        words[0] = ETHTOOL_GDRVINFO;
        self.ioctl(&mut words, "name itself")?;
        let bytes = bytes_of(&words[1..]);
        let name = |i: usize| text(&bytes[i * NAME_BYTES..][..NAME_BYTES]);
        Ok(Driver { name: name(0), version: name(1), firmware: name(2), bus: name(3) })
    }

    /// The driver's own counters (`ethtool -S`), in its order; empty where it has none.
    ///
    /// # Errors
    /// [`EthtoolError::NoSuchLink`], [`EthtoolError::Io`].
    pub fn statistics(&self) -> Result<Vec<(String, u64)>, EthtoolError> {
        let action = "read counters";
        let names = match self.strings(ETH_SS_STATS, action) {
            Err(EthtoolError::Unsupported { .. }) => return Ok(Vec::new()),
            names => names?,
        };
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // struct ethtool_stats: cmd, n_stats, then 64 bits each.
        let mut room = self.room(action)?;
        let words = room.words();
        words[0] = ETHTOOL_GSTATS;
        words[1] = names.len() as u32;
        self.ioctl(words, action)?;
        // Of an interface that took this name meanwhile there may be fewer.
        let count = names.len().min(words[1] as usize).min(words.len() / 2 - 1);
        let bytes = bytes_of(&words[2..2 + 2 * count]);
        let values = bytes.chunks_exact(8).map(|eight| u64::from_ne_bytes(eight.try_into().expect("eight")));
        Ok(names.into_iter().zip(values).collect())
    }

    /// The names of a string set.
    fn strings(&self, set: u32, action: &'static str) -> Result<Vec<String>, EthtoolError> {
        // struct ethtool_sset_info: cmd, reserved, mask (64 bits), then one count for each bit of the mask.
        let mut words = vec![0_u32; 5];
        words[0] = ETHTOOL_GSSET_INFO;
        words[2..4].copy_from_slice(&words_of(1_u64 << set));
        self.ioctl(&mut words, action)?;
        let known = words[2..4] == words_of(1_u64 << set);
        let count = if known { words[4] } else { 0 };
        if count == 0 {
            return Ok(Vec::new());
        }
        // struct ethtool_gstrings: cmd, string_set, len, then the names.
        let mut room = self.room(action)?;
        let words = room.words();
        words[0] = ETHTOOL_GSTRINGS;
        words[1] = set;
        words[2] = count;
        self.ioctl(words, action)?;
        let words_of_name = NAME_BYTES / 4;
        let count = (words[2] as usize).min((words.len() - 3) / words_of_name);
        Ok(bytes_of(&words[3..3 + count * words_of_name]).chunks_exact(NAME_BYTES).map(text).collect())
    }

    fn room(&self, action: &'static str) -> Result<Room, EthtoolError> {
        Room::new().map_err(|source| EthtoolError::Io { link: self.link.clone(), action, source })
    }

    /// Hands `words`, one of ethtool.h's structures, to the driver, which answers in them.
    fn ioctl(&self, words: &mut [u32], action: &'static str) -> Result<(), EthtoolError> {
        // SAFETY: ifreq is plain integers and a pointer, for which zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.link.as_bytes()) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: each caller's structure has the length that the kernel writes, or is in a `Room`: how many items follow is the kernel's to say, and
        // another interface may have got the name since it said so.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
        if result >= 0 {
            return Ok(());
        }
        let (link, source) = (self.link.clone(), io::Error::last_os_error());
        Err(match source.raw_os_error() {
            Some(libc::ENODEV) => EthtoolError::NoSuchLink { link },
            Some(libc::EPERM | libc::EACCES) => EthtoolError::Denied { link, action },
            Some(libc::EOPNOTSUPP) => EthtoolError::Unsupported { link, action },
            _ => EthtoolError::Io { link, action, source },
        })
    }
}

/// Memory for an answer whose length only the kernel knows. Nobody can write to the page behind it, so a longer answer is an error (`EFAULT`).
struct Room(NonNull<c_void>);

impl Room {
    /// Room for 131,071 names.
    const BYTES: usize = 4 << 20;
    /// As much as a page has on any machine.
    const GUARD: usize = 64 << 10;

    fn new() -> io::Result<Self> {
        let whole = Self::BYTES + Self::GUARD;
        // SAFETY: a new mapping; nothing refers to it.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let room = Self(NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: the front of that mapping.
        unsafe { mprotect(start, Self::BYTES, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(room)
    }

    /// Zero at first.
    fn words(&mut self) -> &mut [u32] {
        // SAFETY: so many bytes are mapped, readable and writable, until this is dropped; the kernel aligns mappings to pages.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast(), Self::BYTES / 4) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; nothing refers to it any more.
        let _ = unsafe { munmap(self.0.as_ptr(), Self::BYTES + Self::GUARD) };
    }
}

/// [`Ethtool::set_features`] on the link named `link`.
///
/// # Errors
/// As there.
pub fn set_features(link: &str, wanted: &[(&str, bool)]) -> Result<(), EthtoolError> {
    Ethtool::open(link)?.set_features(wanted)
}

/// A name up to its NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// 64 bits as two words, in the order in which they lie in memory.
fn words_of(value: u64) -> [u32; 2] {
    let b = value.to_ne_bytes();
    [u32::from_ne_bytes([b[0], b[1], b[2], b[3]]), u32::from_ne_bytes([b[4], b[5], b[6], b[7]])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_link_answers() {
        let loopback = Ethtool::open("lo").unwrap();
        let features = loopback.features().unwrap();
        let gso = features.iter().find(|feature| feature.name == "tx-tcp-segmentation").unwrap();
        assert!(gso.active, "{features:?}");
        assert!(features.iter().any(|feature| feature.name == "loopback" && !feature.changeable));
        assert_eq!(loopback.statistics().unwrap(), []);
        let unknown = loopback.set_features(&[("no-such-feature", true)]).unwrap_err();
        assert!(matches!(unknown, EthtoolError::UnknownFeature { .. }), "{unknown}");
    }

    #[test]
    fn an_answer_that_is_too_long_stops_at_the_end_of_its_room() {
        let mut room = Room::new().unwrap();
        assert!(room.words().iter().all(|word| *word == 0));
        let ones = std::fs::File::open("/dev/urandom").unwrap();
        // SAFETY: what is behind the room is mapped, and the kernel refuses to write to it, which is what is tested.
        let read = unsafe { libc::read(ones.as_raw_fd(), room.0.as_ptr(), Room::BYTES + Room::GUARD) };
        assert!(usize::try_from(read).is_ok_and(|read| read <= Room::BYTES), "{read}");
    }

    #[test]
    fn a_missing_link_is_named() {
        let error = Ethtool::open("lhk-none").unwrap().features().unwrap_err();
        assert!(matches!(&error, EthtoolError::NoSuchLink { link } if link == "lhk-none"), "{error}");
        assert!(matches!(Ethtool::open("sixteen-bytes-xx"), Err(EthtoolError::Name { .. })));
    }
}
