//! Round trips: a thread that sends probes and one that receives answers, a responder at the server, and probing without a server.

mod client;
mod echo;
mod probing;
mod responder;
mod tcp_connect;

pub use echo::probe_by_echo;
pub use tcp_connect::probe_by_tcp;

pub(crate) use client::ProbingData;
pub(crate) use responder::AnsweringData;
