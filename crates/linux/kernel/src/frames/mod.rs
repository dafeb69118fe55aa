//! Ethernet frames: sent, received, captured.

pub mod capture_ring;
pub mod packet;
pub mod packet_ring;
pub mod socket_filter;
