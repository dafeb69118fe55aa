//! Everything of longhaul that touches Linux, and nothing that decides: no model, no policy, no measurement lives here.
//!
//! The crate opens `unsafe`; each site says why it is sound. Every other crate but `bpf` stays safe.
//!
//! | to | module |
//! |---|---|
//! | read clocks, relate packet stamps to them | [`clock`] |
//! | receive and send Ethernet frames | [`packet`], [`packet_ring`] |
//! | capture the heads of frames, and say of which | [`capture_ring`], [`socket_filter`] |
//! | send and receive UDP for tests | [`udp`] |
//! | open TCP sockets, pace them, choose their congestion control, send without a copy | [`tcp`] |
//! | read what the kernel knows of a TCP connection | [`tcp_info`] |
//! | know congestion controls and who uses them | [`congestion_control`] |
//! | know the TCP connections of others | [`sock_diag`] |
//! | hold packets in memory that is there when needed | [`memory`] |
//! | write to a disk without a copy | [`direct_file`] |
//! | run on time | [`schedule`], [`wait`] |
//! | be stopped and nudged | [`signals`] |
//! | separate hosts on one machine | [`namespace`], [`user_namespace`], [`mounts`] |
//! | make and read links, addresses, neighbours, routes | [`link`] |
//! | read and set a driver's features and counters | [`ethtool`] |
//! | know what changed in all counters, and what a driver's mean | [`counters`], [`driver_statistics`] |
//! | describe a host and what may slow it down | [`host`] |
//! | read and set kernel parameters | [`sysctl`] |
//! | steer received packets to CPUs, and back whatever happens | [`rps`] |
//! | find and end processes, read what they use | [`process`], [`procfs`] |
//! | know which process has which socket | [`process_sockets`] |
//! | talk to a process by name, leaving no file | [`unix`] |
//! | know beforehand whether it will be allowed | [`capability`] |

#![allow(unsafe_code)]

pub mod capability;
pub mod capture_ring;
pub mod clock;
pub mod congestion_control;
pub mod counters;
pub mod direct_file;
pub mod driver_statistics;
pub mod ethtool;
pub mod host;
pub mod link;
mod link_ioctl;
pub mod memory;
pub mod mounts;
pub mod namespace;
pub mod packet;
pub mod packet_ring;
pub mod process;
pub mod process_sockets;
pub mod procfs;
pub mod rps;
pub mod schedule;
pub mod signals;
pub mod sock_diag;
pub mod socket_filter;
pub mod sysctl;
pub mod tcp;
pub mod tcp_info;
pub mod udp;
pub mod unix;
pub mod user_namespace;
pub mod wait;
