//! What the kernel tells of a loaded program, asked for by its number.
//!
//! libbpf-rs only walks over all programs, and its walk ends where one of another process vanishes meanwhile.
//!
//! Source: bpf(2), `struct bpf_prog_info` of <linux/bpf.h>.

#![allow(unsafe_code)]

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

/// The kernel's own bound (`MAX_USED_MAPS` of <linux/bpf_verifier.h>).
const MAPS_MOST: usize = 64;

/// A loaded program.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    /// The first 15 bytes of its name.
    pub(crate) name: String,
    /// Numbers of the maps that it uses.
    pub(crate) map_ids: Vec<u32>,
    /// Runs that were skipped, because the program was running on the CPU already.
    pub(crate) recursion_misses: u64,
}

impl LoadedProgram {
    /// The program with number `id`.
    ///
    /// # Errors
    /// Those of bpf(2): `NotFound` where there is none.
    pub(crate) fn find(id: u32) -> io::Result<Self> {
        // SAFETY: takes a number; a new descriptor comes back, or an error.
        let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut map_ids = vec![0_u32; MAPS_MOST];
        let mut info = libbpf_sys::bpf_prog_info {
            nr_map_ids: MAPS_MOST as u32,
            map_ids: map_ids.as_mut_ptr() as u64,
            ..Default::default()
        };
        let mut bytes = size_of_val(&info) as u32;
        // SAFETY: the structure and the array in it live through the call and say their sizes.
        let result =
            unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut bytes) };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        map_ids.truncate(info.nr_map_ids as usize);
        let name: Vec<u8> = info.name.iter().take_while(|&&byte| byte != 0).map(|&byte: &c_char| byte as u8).collect();
        Ok(Self { name: String::from_utf8_lossy(&name).into_owned(), map_ids, recursion_misses: info.recursion_misses })
    }
}
