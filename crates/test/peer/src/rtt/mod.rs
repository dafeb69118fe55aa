//! Round trips: a thread that sends probes and one that receives answers, a responder at the server, and probing without a server.

mod beside;
mod client;
mod closed_port;
mod content;
mod echo;
mod hops;
mod own_clock;
mod own_route;
mod probing;
mod reading;
mod responder;
mod stamps;
mod tcp_connect;

pub use beside::LatencyBeside;
pub use closed_port::probe_by_closed_port;
pub use echo::probe_by_echo;
pub use hops::probe_hops;
pub use own_clock::clock_state;
pub use tcp_connect::probe_by_tcp;

pub(crate) use client::ProbingData;
pub(crate) use responder::AnsweringData;
