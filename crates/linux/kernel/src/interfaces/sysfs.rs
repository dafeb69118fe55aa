//! A sysfs that shows the interfaces of the calling thread's network namespace, and the forms that its files have.
//!
//! `/sys/class/net` shows the interfaces of the namespace in which `/sys` was mounted. Where that is another one, this makes a new
//! sysfs and opens it without mounting it anywhere. Source: sysfs(5), fsopen(2), fsmount(2).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::link::Link;

/// Interfaces of one stack (VLAN over bond over NIC) that are followed down.
const STACK_MOST: usize = 8;

/// A sysfs, `/sys` or a new one.
#[derive(Debug)]
pub struct Sysfs {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Sysfs {
    /// The sysfs of the calling thread's network namespace, which has `links`, to read.
    ///
    /// # Errors
    /// `/sys` shows another namespace, and the caller may not make a sysfs of its own.
    pub fn of(links: &[Link]) -> Result<Self, String> {
        Self::open(links, MountAttrFlags::MOUNT_ATTR_RDONLY)
    }

    /// As [`Sysfs::of`], to write too.
    pub(crate) fn writable(links: &[Link]) -> Result<Self, String> {
        Self::open(links, MountAttrFlags::empty())
    }

    fn open(links: &[Link], attributes: MountAttrFlags) -> Result<Self, String> {
        if shows(Path::new("/sys"), links) {
            return Ok(Self { root: "/sys".into(), _mount: None });
        }
        let fresh = || {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | attributes;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mount = fresh().map_err(|errno: rustix::io::Errno| {
            format!("/sys shows another network namespace, and a sysfs of this one cannot be opened: {errno}")
        })?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        let sysfs = Self { root, _mount: Some(mount) };
        if shows(&sysfs.root, links) { Ok(sysfs) } else { Err("sysfs shows another network namespace".into()) }
    }

    /// The directory of interface `name`.
    pub fn interface(&self, name: &str) -> PathBuf {
        self.root.join("class/net").join(name)
    }

    /// `interface` and those below it, from which it gets its packets: it first, each once.
    pub(crate) fn stack(&self, interface: &str) -> Vec<String> {
        let mut stack = vec![interface.to_owned()];
        let mut at = 0;
        while at < stack.len() && stack.len() < STACK_MOST {
            for name in lower(&self.interface(&stack[at])) {
                if !stack.contains(&name) {
                    stack.push(name);
                }
            }
            at += 1;
        }
        stack
    }
}

/// The lower interfaces of the one of `directory`: `lower_eth0`.
fn lower(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("lower_").map(str::to_owned)).collect()
}

/// Whether its `class/net` has just these links, by name, index and address: two namespaces may well both have an `eth0` with
/// index 2, but hardly with one MAC address.
fn shows(root: &Path, links: &[Link]) -> bool {
    let directory = root.join("class/net");
    // Other entries may be there: bonding_masters.
    let listed = fs::read_dir(&directory).map_or(0, |entries| entries.flatten().filter(|e| e.path().is_dir()).count());
    listed == links.len()
        && links.iter().all(|link| {
            let own = directory.join(&link.name);
            let mac = link.mac.unwrap_or_default().map(|byte| format!("{byte:02x}")).join(":");
            read(&own.join("ifindex")).is_ok_and(|index| index == link.index.to_string())
                && (link.mac.is_none() || read(&own.join("address")).is_ok_and(|address| address == mac))
        })
}

/// `path` below a sysfs of our own as it is called in `/sys`; any other as it is.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.find("/class/net/").map_or_else(|| text.to_string(), |at| format!("/sys{}", &text[at..]))
}

/// A file's text, trimmed.
///
/// # Errors
/// As reading a file fails.
pub fn read(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// A file's whole number.
///
/// # Errors
/// As reading a file fails; [`io::ErrorKind::InvalidData`] where the text is no number.
pub fn read_number(path: &Path) -> io::Result<u64> {
    let text = read(path)?;
    text.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("`{text}` is not a number")))
}

/// The interrupt lines of `device`, a folder below `/sys/devices`, or of the device that it sits on; empty for a virtual one.
pub fn interrupts(device: &Path) -> Vec<u32> {
    let of = |device: &Path| -> Option<Vec<u32>> {
        let msi = fs::read_dir(device.join("msi_irqs")).into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = msi.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if numbers.is_empty() {
            // Without MSI the device has one line, which it shares with others.
            numbers.extend(read_number(&device.join("irq")).ok().and_then(|irq| u32::try_from(irq).ok()));
        }
        numbers.retain(|irq| *irq != 0);
        numbers.sort_unstable();
        (!numbers.is_empty()).then_some(numbers)
    };
    device.ancestors().find_map(of).unwrap_or_default()
}

/// The numbers in a list such as `0-3,8`. Skips malformed parts, and cuts ranges at 8,192 numbers (the most CPUs
/// that Linux supports).
pub fn number_list(text: &str) -> Vec<u32> {
    /// `CONFIG_NR_CPUS` at its highest.
    const MOST: u32 = 8_192;
    let mut numbers: Vec<u32> = text
        .trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(first..=last.min(first.saturating_add(MOST)))
        })
        .take(MOST as usize)
        .flatten()
        .take(MOST as usize)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The numbers of the bits set in a mask such as `00000000,0000000f`; `None` where the text is no mask.
pub fn mask_list(text: &str) -> Option<Vec<u32>> {
    let digits: Vec<u32> =
        text.trim().chars().filter(|c| *c != ',').map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>()?;
    let bits = digits.iter().rev().enumerate().flat_map(|(place, digit)| {
        (0..4).filter(move |bit| digit & (1 << bit) != 0).map(move |bit| place as u32 * 4 + bit)
    });
    (!digits.is_empty()).then(|| bits.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_are_named_as_in_sys() {
        let path = Path::new("/proc/self/fd/7/class/net/eth0/queues/rx-0/rps_cpus");
        assert_eq!(shown(path), "/sys/class/net/eth0/queues/rx-0/rps_cpus");
    }

    #[test]
    fn lists_and_masks() {
        assert_eq!(number_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(number_list(""), [0_u32; 0]);
        assert_eq!(number_list("x,5-,2"), [2]);
        assert_eq!(mask_list("00000000,0000001f\n"), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(mask_list("1,00000000"), Some(vec![32]));
        assert_eq!(mask_list("0"), Some(vec![]));
        assert_eq!(mask_list("zz"), None);
        assert_eq!(mask_list(""), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-fx,\\- \\n]{0,60}") {
            prop_assert!(number_list(&text).len() <= 8_192);
            let _ = mask_list(&text);
        }
    }
}
