//! Questions to a link's driver that are answered in place: `SIOCETHTOOL`, `SIOCGHWTSTAMP`, `SIOCSHWTSTAMP`.
//!
//! All three take a link's name and a pointer to a structure of 32-bit words. Source: `<linux/ethtool.h>`,
//! `<linux/net_tstamp.h>`, netdevice(7).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Hands `words` to the driver of `link` in the calling thread's network namespace, which answers in them.
///
/// `words` must have room for all that the kernel writes for this request: its structures of fixed size, or as many items as a
/// count in the structure says.
pub(crate) fn ask(link: &str, request: libc::Ioctl, words: &mut [u32]) -> io::Result<()> {
    let mut question = Question::new(link, request, words.to_vec())?;
    question.ask()?;
    words.copy_from_slice(&question.words);
    Ok(())
}

/// The number of `link` in the calling thread's network namespace. It keeps it when it gets another name.
pub(crate) fn index_of(link: &str) -> io::Result<u32> {
    Question::new(link, libc::SIOCGIFINDEX, Vec::new())?.index()
}

/// A question with all that it needs, so that it can be asked later and without memory.
#[derive(Debug)]
pub(crate) struct Question {
    socket: OwnedFd,
    request: libc::Ioctl,
    /// Boxed: a copy of the process finds it at the same place.
    message: Box<Message>,
    words: Vec<u32>,
}

/// `struct ifreq`.
struct Message(libc::ifreq);

// SAFETY: its pointer leads to the words of the question that it is in, and is followed by whoever borrows that alone.
unsafe impl Send for Message {}
// SAFETY: as above.
unsafe impl Sync for Message {}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ifreq")
    }
}

impl Question {
    pub(crate) fn new(link: &str, request: libc::Ioctl, mut words: Vec<u32>) -> io::Result<Self> {
        if link.is_empty() || link.len() >= libc::IFNAMSIZ || link.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        // Any socket will do; one that needs no IP. (Stamping is asked of the link by name as well.)
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .or_else(|_| socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None))?;
        // SAFETY: ifreq is plain integers and a pointer, for which zero is a value.
        let mut message: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in message.ifr_name.iter_mut().zip(link.as_bytes()) {
            *to = *from as libc::c_char;
        }
        message.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        Ok(Self { socket, request, message: Box::new(Message(message)), words })
    }

    fn ask(&mut self) -> io::Result<()> {
        let (socket, request, message) = self.parts();
        // SAFETY: the structure behind the pointer has the room that the request needs, as the callers in this crate see to.
        let result = unsafe { libc::ioctl(socket, request, message) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The number of the link.
    pub(crate) fn index(&self) -> io::Result<u32> {
        let mut asked = self.message.0;
        // SAFETY: the kernel reads and writes one ifreq.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut asked) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel wrote the number (netdevice(7)).
        Ok(unsafe { asked.ifr_ifru.ifru_ifindex } as u32)
    }

    /// The arguments of ioctl(2).
    pub(crate) fn parts(&mut self) -> (RawFd, libc::Ioctl, *mut libc::ifreq) {
        (self.socket.as_raw_fd(), self.request, &raw mut self.message.0)
    }
}

/// Writes the name that the link `index` has now into `message`; whether there is such a link. As signal-safety(7) allows.
///
/// # Safety
/// `message` leads to a structure that nobody else uses.
pub(crate) unsafe fn name(socket: RawFd, index: u32, message: *mut libc::ifreq) -> bool {
    // SAFETY: ifreq is plain integers and a pointer, for which zero is a value; the kernel reads and writes one; the caller sees to `message`.
    unsafe {
        let mut asked: libc::ifreq = std::mem::zeroed();
        asked.ifr_ifru.ifru_ifindex = index as libc::c_int;
        let found = libc::ioctl(socket, libc::SIOCGIFNAME, &raw mut asked) == 0;
        if found {
            (*message).ifr_name = asked.ifr_name;
        }
        found
    }
}
