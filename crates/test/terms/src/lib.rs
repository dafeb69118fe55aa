//! What all kinds of tests share: how much is sent, who sends, on which CPUs; what a stream sent; buffers and counters.
//!
//! Terms of only one kind of test are in the crate of that kind.

mod bounded;
mod directions;
mod parameters;
mod report;

pub use bounded::{bounded_counters, bounded_list, bounded_name, cut_words, short_words};
pub use directions::Directions;
pub use parameters::{
    Affinity, Amount, Collect, MAX_DURATION, MAX_STREAMS, ParameterError, RATES, SOCKBUF_LEAST, SoftirqPlacement,
    TestDirection, check_interval, check_range, check_sockbuf,
};
pub use report::{ChangedCounters, EndCounters, Latency, RoundTrips, SocketBuffer, StreamSent, ThreadCpu};
