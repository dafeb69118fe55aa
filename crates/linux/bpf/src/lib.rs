//! BPF programs and what loads them.
//!
//! A program is a folder: `src/<name>/intf.h` (what kernel and user space tell each other), `src/<name>/main.bpf.c`, and the Rust
//! beside them; `build.rs` compiles the C with clang. `src/kernel.h` has the few kernel types they read (CO-RE, so
//! one object runs on many kernels). A program lives as long as the process that attached it holds it, and a killed process leaves
//! none behind; only a congestion control or a filter that is asked to stay is pinned.
//!
//! Where the build had no clang the API is the same and says so: [`BpfError::NotBuilt`].
//!
//! | to | module |
//! |---|---|
//! | see which packets of a test the kernel drops, why and where | [`drops`] |
//! | name the place of a drop in the words of a result | [`drops::place`] |
//! | have a congestion control that the kernel lacks | [`congestion`] |
//! | send frames that never were in a socket | [`mix`] |
//! | see where TCP connections lose bytes, and what they send again | [`tcp_loss`] |
//! | see which process opens and closes TCP connections | [`tcp_owner`] |
//! | keep frames for others away from the stack | [`filter`] |
//! | know beforehand whether it will work | [`support`] |
//! | name an address of the kernel | [`symbols`] |

pub mod congestion;
pub mod drops;
mod error;
pub mod filter;
pub mod mix;
pub mod support;
pub mod symbols;
pub mod tcp_loss;
pub mod tcp_owner;

pub use error::BpfError;

/// What `build.rs` made of the C sources. Generated code is not ours to lint.
#[cfg(bpf_programs)]
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    pub(crate) mod drops {
        include!(concat!(env!("OUT_DIR"), "/drops.skel.rs"));
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
}
