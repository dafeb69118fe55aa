//! Sockets, and what the kernel knows of those of others.

pub mod congestion_control;
pub mod process_sockets;
pub mod sock_diag;
pub mod tcp;
pub mod tcp_info;
pub mod udp;
pub mod unix;
