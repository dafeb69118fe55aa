//! The control protocol between client and server, as state machines without sockets or clock.
//!
//! Both sessions have the same shape. Events go in by `handle_*` with the time. Instructions come out of
//! [`poll_output`](ClientSession::poll_output) until it returns `None`. [`poll_timeout`](ClientSession::poll_timeout) says when
//! `handle_timeout` is due. Time is any clock that does not step, the same one for all calls.
//!
//! ```text
//! client                                   server
//!   │  Hello, then Propose                   │  each first
//!   │ ─────────────────────────────────────► │  RequestAdmission → Queued … or Refuse
//!   │                                Accept  │  after OpenData
//!   │ ◄───────────────────────────────────── │
//!   │ OpenData; hellos over UDP ───────────► │  see `longhaul_udp::proof`, for TCP `longhaul_tcp::proof`
//!   │                            DataProven  │
//!   │ ◄───────────────────────────────────── │
//!   │  Start                                 │
//!   │ ─────────────────────────────────────► │  from here see the private module `transfer`
//!   │             … data, Finished, Drained …│
//!   │                              Report…   │  in pieces
//!   │ ◄───────────────────────────────────── │
//!   │  Goodbye                               │
//! ```
//!
//! Every wait is limited ([`limits`]): a peer that is slow, silent or disconnected ends the session, and so does one that sends an
//! unexpected message ([`Output::Failed`]).

mod admission;
mod bounded;
mod caveats;
mod client;
mod error;
pub mod kind;
pub mod limits;
mod line;
mod message;
mod output;
mod progress;
mod randomness;
mod server;
mod transfer;

pub use admission::{Admission, BusyPolicy, Ticket, Verdict};
pub use client::{ClientConfig, ClientSession};
pub use error::TOO_LONG;
pub use kind::tcp::left_for_samples;
pub use kind::{Cut, EndReport, TestEnd, TestKind, TestParameters};
pub use limits::Caps;
pub use message::{Accept, Hello, MeasurementId, Message, Progress, Refusal, SessionError};
pub use output::{DataPlan, Output};
pub use progress::{DroppedData, PacketsByLocation};
pub use randomness::Randomness;
pub use server::{ServerConfig, ServerSession};
pub use transfer::DataEvent;
