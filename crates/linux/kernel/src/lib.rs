//! Everything of longhaul that touches Linux, and nothing that decides: no model, no policy, no measurement lives here.
//!
//! The crate opens `unsafe`; each site says why it is sound. Every other crate but `bpf` stays safe.
//!
//! The folders group modules by what they reach; all are named from the crate's root.
//!
//! | to | module |
//! |---|---|
//! | read clocks, relate packet stamps to them | [`clock`] |
//! | receive and send Ethernet frames | [`packet`], [`packet_ring`] |
//! | capture header snippets of frames, and choose the frames | [`capture_ring`], [`socket_filter`] |
//! | send and receive UDP for tests | [`udp`] |
//! | read an address of this host, give it another port, know its zone | [`address`] |
//! | open TCP sockets, pace them, choose their congestion control, send without a copy | [`tcp`] |
//! | read what the kernel knows of a TCP connection | [`tcp_info`] |
//! | know congestion controls and who uses them | [`congestion_control`] |
//! | know the TCP connections of others | [`sock_diag`] |
//! | hold packets in memory that is there when needed | [`memory`] |
//! | write to a disk without a copy | [`direct_file`] |
//! | know how much of a file is holes | [`holes`] |
//! | write files that are there when they are complete | [`new_file`] |
//! | follow links, but none of another user | [`links`] |
//! | read a key that nobody else may use | [`secret_file`] |
//! | write into a folder, whatever has its name by then | [`open_folder`] |
//! | run on time | [`schedule`], [`wait`] |
//! | be stopped and nudged | [`signals`] |
//! | separate hosts on one machine | [`namespace`], [`user_namespace`], [`mounts`] |
//! | make and read links, addresses, neighbours, routes, queueing disciplines | [`link`] |
//! | read and set a driver's features and counters | [`ethtool`] |
//! | know what changed in all counters, and what a driver's mean | [`counters`], [`driver_statistics`] |
//! | read a driver's rings, queues and interrupt coalescing, set rings | [`driver_settings`] |
//! | read what sysfs has of an interface | [`sysfs`] |
//! | read and set kernel parameters | [`sysctl`] |
//! | change settings for a while, and back whatever happens | [`guard`] |
//! | steer received packets to CPUs, and back whatever happens | [`rps`] |
//! | change what shapes arrivals at an interface, and back whatever happens | [`receive_settings`] |
//! | have a NIC stamp packets, and back whatever happens | [`nic_stamps`] |
//! | find and end processes, read what they use, have many files open | [`process`], [`procfs`] |
//! | start another program of this installation, but none that somebody put there | [`installed`] |
//! | run a program in a cgroup of its own | [`cgroup`] |
//! | know how much CPU time and memory control groups allow | [`group_limits`] |
//! | read and write files past the page cache | [`direct_file`] |
//! | know which process has which socket | [`process_sockets`] |
//! | look at the open files of processes, but not at millions | [`open_files`] |
//! | say a line where a full disk ends no thread | [`standard_error`] |
//! | talk to a process by name, leaving no file | [`unix`] |
//! | know beforehand whether it will be allowed | [`capability`] |

#![allow(unsafe_code)]

pub mod address;
mod changes;
pub mod clock;
pub mod direct_file;
mod frames;
pub mod holes;
mod interfaces;
pub mod links;
pub mod memory;
pub mod new_file;
pub mod open_folder;
mod processes;
pub mod secret_file;
mod sockets;
pub mod standard_error;
pub mod sysctl;
pub mod wait;

pub use changes::{cgroup, guard, nic_stamps, receive_settings, rps};
pub use frames::{capture_ring, packet, packet_ring, socket_filter};
pub(crate) use interfaces::link_ioctl;
pub use interfaces::{counters, driver_settings, driver_statistics, ethtool, link, sysfs};
pub use processes::{
    capability, group_limits, installed, mounts, namespace, open_files, process, procfs, schedule, signals,
    user_namespace,
};
pub use sockets::{congestion_control, process_sockets, sock_diag, tcp, tcp_info, udp, unix};
