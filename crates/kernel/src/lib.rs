//! Everything of longhaul that touches Linux, and nothing that decides: no model, no policy, no measurement lives here.
//!
//! The crate opens `unsafe`; each site says why it is sound. Every other crate but `bpf` stays safe.
//!
//! | to | module |
//! |---|---|
//! | read clocks, relate packet stamps to them | [`clock`] |
//! | receive and send Ethernet frames | [`packet`], [`packet_ring`] |
//! | hold packets in memory that is there when needed | [`memory`] |
//! | run on time | [`schedule`], [`wait`] |
//! | be stopped and nudged | [`signals`] |
//! | separate hosts on one machine | [`namespace`], [`user_namespace`], [`mounts`] |
//! | make and read links, addresses, neighbours, routes | [`link`] |
//! | read and set a driver's features and counters | [`ethtool`] |
//! | read and set kernel parameters | [`sysctl`] |
//! | find and end processes, read what they use | [`process`], [`procfs`] |
//! | talk to a process by name, leaving no file | [`unix`] |
//! | know beforehand whether it will be allowed | [`capability`] |

#![allow(unsafe_code)]

pub mod capability;
pub mod clock;
pub mod ethtool;
pub mod link;
pub mod memory;
pub mod mounts;
pub mod namespace;
pub mod packet;
pub mod packet_ring;
pub mod process;
pub mod procfs;
pub mod schedule;
pub mod signals;
pub mod sysctl;
pub mod unix;
pub mod user_namespace;
pub mod wait;
