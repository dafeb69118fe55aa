//! The kernel's own modules as judges: each congestion control in BPF that Linux has a module of, with Linux's parameters, beside that module
//! **in the same kernel**. The same losses must give the same windows.
//!
//! ```text
//!   guest: Linux 6.12 of Debian 13 in virtual time, and this program
//!   ┌─────────────────────────────────────────────────────────────────┐
//!   │ comparisons.rs                                                  │
//!   │   flow.rs: socket, lh control       flow.rs: socket, tcp_NAME.ko │
//!   │     │ TUN                             │ TUN                      │
//!   │   peer.rs: path and receiver        peer.rs: path and receiver   │
//!   │     └────── trace.rs: windows, segment by segment ──────┘        │
//!   └─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The path is a program that runs in lockstep with the sender through a TUN device, in one thread: an acknowledgement is written, what TCP
//! sends upon it is read, `TCP_INFO` is read. A veth with netem and a kernel's receiver would add a softirq's order and delayed
//! acknowledgements to what is compared. What could differ besides is turned off (`flow::PARAMETERS`), super-packets too: TCP fills those by
//! the clock.
//!
//! **Windows are compared by delivered segments, not by time**, after each acknowledgement, and so are the thresholds that losses set. They
//! must be equal. In virtual time two flows of one control are: time passes by instructions, and round trips differ by the instructions that
//! one control takes more than another, less than a microsecond. Tolerances are for what is meant to differ, as each test says.
//!
//! To see how far those of one control are apart: `ORACLE_ONLY=westwood cargo test --workspace --test oracle -- --nocapture those`.

mod comparisons;
mod flow;
mod guests;
mod peer;
mod trace;
mod tun;

/// Tells this program that it is in the guest.
const IN_GUEST: &str = "ORACLE_GUEST";
