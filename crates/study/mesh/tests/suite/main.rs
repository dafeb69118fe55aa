//! A mesh without sockets, clocks and disks: its messages, months in virtual time, and where packets are lost.

mod messages;
mod months;
mod place;
