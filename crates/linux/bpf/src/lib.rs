//! BPF programs, and the code that loads them.
//!
//! A program is a folder: `src/<name>/intf.h` (what kernel and user space exchange), `src/<name>/main.bpf.c`, and the Rust
//! beside them; `build.rs` compiles the C with clang. `src/kernel.h` has the few kernel types they read (CO-RE, so
//! one object runs on many kernels). A program lives as long as its process holds it, and a killed process leaves none behind.
//! Only a congestion control or a filter that is to be kept is pinned.
//!
//! A build without clang has the same API, and its calls fail: [`BpfError::NotBuilt`].
//!
//! | to | module |
//! |---|---|
//! | see which packets of a test the kernel drops, why and where | [`drops`] |
//! | name the place of a drop in the words of a result | [`drops::place`] |
//! | load a congestion control that the kernel lacks; give it to connections | [`congestion`] |
//! | give each connection of a program a highest rate | [`pacing`] |
//! | generate frames in the kernel and send them as a driver does | [`mix`] |
//! | see where TCP connections lose bytes, and what they retransmit | [`tcp_loss`] |
//! | see which process opens and closes TCP connections | [`tcp_owner`] |
//! | count what the UDP sockets of other programs send, receive and lose | [`udp_flow`] |
//! | count, or drop in XDP, frames that are not addressed to this host | [`filter`] |
//! | check beforehand whether BPF programs will work | [`support`] |
//! | name an address of the kernel | [`symbols`] |

pub mod caveats;
pub mod congestion;
pub mod drops;
mod error;
pub mod filter;
pub mod mix;
pub mod pacing;
#[cfg(bpf_programs)]
mod program;
#[cfg_attr(not(bpf_programs), allow(dead_code))]
mod reasons;
pub mod support;
pub mod symbols;
pub mod tcp_loss;
pub mod tcp_owner;
pub mod udp_flow;

pub use error::BpfError;

/// Skeletons that `build.rs` makes from the C sources; generated code is not linted.
#[cfg(bpf_programs)]
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    pub(crate) mod drops {
        include!(concat!(env!("OUT_DIR"), "/drops.skel.rs"));
    }
    pub(crate) mod selection {
        include!(concat!(env!("OUT_DIR"), "/selection.skel.rs"));
    }
    pub(crate) mod pacing {
        include!(concat!(env!("OUT_DIR"), "/pacing.skel.rs"));
    }
    pub(crate) mod mix {
        include!(concat!(env!("OUT_DIR"), "/mix.skel.rs"));
    }
    pub(crate) mod filter {
        include!(concat!(env!("OUT_DIR"), "/filter.skel.rs"));
    }
    pub(crate) mod filter_generation {
        include!(concat!(env!("OUT_DIR"), "/filter_generation.skel.rs"));
    }
    pub(crate) mod tcp_loss {
        include!(concat!(env!("OUT_DIR"), "/tcp_loss.skel.rs"));
    }
    pub(crate) mod tcp_owner {
        include!(concat!(env!("OUT_DIR"), "/tcp_owner.skel.rs"));
    }
    pub(crate) mod udp_flow {
        include!(concat!(env!("OUT_DIR"), "/udp_flow.skel.rs"));
    }
}
