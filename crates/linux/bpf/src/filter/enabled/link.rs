//! The link between an XDP program and an interface, and the file that keeps it. libbpf-rs does not offer these.
//!
//! Source: bpf(2), `tools/lib/bpf/bpf.h`, `tools/lib/bpf/libbpf.h`.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};

use crate::filter::Mode;
use crate::support::io_error;

/// `BPF_F_REPLACE` of <linux/bpf.h>.
const REPLACE: u32 = 4;

/// Holds a program at an interface until its last descriptor is closed.
#[derive(Debug)]
pub(super) struct XdpLink {
    fd: OwnedFd,
}

impl XdpLink {
    /// Attaches `program` to link `ifindex` of the calling thread's network namespace. Fails where another program is attached.
    pub(super) fn create(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> io::Result<Self> {
        let flags = match mode {
            Mode::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Mode::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        };
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags,
            ..Default::default()
        };
        // SAFETY: the options live through the call and say their size; the kernel checks the rest.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, libbpf_sys::BPF_XDP, &raw const options)
        };
        Self::owned(fd)
    }

    /// The link through which the program with number `program_id` is attached.
    pub(super) fn of_program(program_id: u32) -> io::Result<Self> {
        let mut id = 0;
        // SAFETY: takes a number and a place for one, which lives through the call.
        while unsafe { libbpf_sys::bpf_link_get_next_id(id, &raw mut id) } == 0 {
            // SAFETY: takes a number; a new descriptor comes back, or an error.
            let link = Self::owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) });
            // A link of another program can be gone by now (ENOENT), or not yet complete (EAGAIN).
            let Ok(link) = link else { continue };
            let info = LinkInfo::from_fd(link.fd.as_fd());
            if info.is_ok_and(|info| info.prog_id == program_id && matches!(info.info, LinkTypeInfo::Xdp(_))) {
                return Ok(link);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "it was attached without a link"))
    }

    /// Replaces `old` by `new` between two frames.
    pub(super) fn replace(&self, new: BorrowedFd<'_>, old: BorrowedFd<'_>) -> io::Result<()> {
        let options = libbpf_sys::bpf_link_update_opts {
            sz: size_of::<libbpf_sys::bpf_link_update_opts>() as libbpf_sys::size_t,
            flags: REPLACE,
            old_prog_fd: old.as_raw_fd() as u32,
            ..Default::default()
        };
        // SAFETY: the options live through the call and say their size; the descriptors are open.
        done(unsafe { libbpf_sys::bpf_link_update(self.fd.as_raw_fd(), new.as_raw_fd(), &raw const options) })
    }

    /// Detaches the program from its interface, whichever processes hold the link.
    pub(super) fn detach(&self) -> io::Result<()> {
        // SAFETY: takes an open descriptor.
        done(unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) })
    }

    /// Its number in the kernel: no other one has it while this one exists.
    pub(super) fn id(&self) -> io::Result<u32> {
        LinkInfo::from_fd(self.fd.as_fd()).map(|info| info.id).map_err(|error| io_error(&error))
    }

    /// Keeps it by a file in a BPF file system.
    pub(super) fn pin(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the path ends with a zero and lives through the call.
        done(unsafe { libbpf_sys::bpf_obj_pin(self.fd.as_raw_fd(), path.as_ptr()) })
    }

    fn owned(fd: i32) -> io::Result<Self> {
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the kernel just gave this descriptor, and nobody else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// What is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) program_id: u32,
    pub(super) mode: Mode,
}

/// The XDP program at link `ifindex` of the calling thread's network namespace. One in hardware counts as native.
pub(super) fn attached(ifindex: u32) -> io::Result<Option<Attached>> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options live through the call and say their size.
    done(unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut options) })?;
    let native = if options.hw_prog_id > 0 { options.hw_prog_id } else { options.drv_prog_id };
    Ok(match (native, options.skb_prog_id) {
        (0, 0) => None,
        (0, program_id) => Some(Attached { program_id, mode: Mode::Generic }),
        (program_id, _) => Some(Attached { program_id, mode: Mode::Native }),
    })
}

/// What running the XDP program `program` over a frame of zeros returns.
pub(super) fn run(program: BorrowedFd<'_>) -> io::Result<u32> {
    let frame = [0_u8; 64];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ..Default::default()
    };
    // SAFETY: options and frame live through the call and say their sizes; there is no place for anything to be written to.
    done(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut options) })?;
    Ok(options.retval)
}

/// One frame by the XDP program `program`, `repeat` times, as if it came in by link `ifindex`: what the program returns, and the
/// nanoseconds that one time takes.
pub(super) fn run_over(program: BorrowedFd<'_>, ifindex: u32, frame: &[u8], repeat: u32) -> io::Result<(u32, u32)> {
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, frame.len() as u32, 0, ifindex, 0, 0];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: size_of_val(&context) as u32,
        repeat: repeat as i32,
        ..Default::default()
    };
    // SAFETY: options, frame and context live through the call and say their sizes; there is no place to be written to.
    done(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok((options.retval, options.duration))
}

/// libbpf gives an error's number, negative.
fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
