//! TCP tests as seen by the kernel: `TCP_INFO` samples, their summary for each flow, the result of a test.
//!
//! It does not matter who made a connection: `struct tcp_info` is the same from getsockopt(2) and from sock_diag(7).
//!
//! ```text
//!  bytes of TCP_INFO ─► TcpInfo ─► Sample ─┬─► FlowSummary (limited_by, RTT, retransmissions)
//!                                          └─► Series (bounded) ─► text for the other end, Parquet
//! ```

mod backlog;
pub mod caveats;
mod handshake;
mod info;
mod limited;
mod loss;
mod parameters;
pub mod proof;
mod receiving;
mod report;
mod result;
mod series;
mod summary;
mod watched;

pub use backlog::unsent_limit_bytes;
pub use handshake::{SynReceived, TcpEndOptions, TcpHandshake};
pub use info::{FIELDS, Field, INFO_BYTES, TcpInfo, fields};
pub use limited::{LimitedBy, LimitedTimes};
pub use loss::{LossBytes, Segment, TcpDrop};
pub use parameters::{
    CongestionStep, MAX_BLOCK_BYTES, MAX_CONGESTION_NAME, TcpParameters, Transfers, WindowAuto, is_congestion_name,
};
pub use receiving::{ReceiverLimitedBy, ReceiverSummary, ReceiverTimes, Receiving};
pub use report::{CongestionSince, MOST_TRANSFERS, Retransmitted, SamplingCost, TcpEndReport, TcpStreamReport};
pub use result::{
    Rfc6349, TcpAssembled, TcpBuffers, TcpLossReason, TcpMemory, TcpResult, TcpStreamResult, buffer_delay_percentage,
    tcp_efficiency_percentage, transfer_time_ratio,
};
pub use series::{MAX_SAMPLES, Sample, Series, SeriesError};
pub use summary::{CountedRetransmits, FlowSummary};
pub use watched::{Flow, Limit, WatchResult, WatchedConnection};
