//! Tests between two hosts: sockets, threads and evidence around a session.

pub mod pacer;
