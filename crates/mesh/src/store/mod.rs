//! Results on disk: what a site keeps until the coordinator has confirmed it, and what the coordinator keeps.
//!
//! Both are SQLite in WAL mode, written through to the disk. A result has an id of its own, so it can be delivered any number of times and is
//! there once. Each step is one transaction: after `kill -9` and after a loss of power it is there or it is not.

mod archive;
mod database;
mod measurements;
mod outbox;
mod reader;
mod series;
mod single;
mod summary;
mod wanted;

pub use archive::{Archive, Hour};
pub use database::StoreError;
pub use outbox::{Kept, Outbox};
pub use reader::{PairSum, Point, Reader, Span, Tested};
pub use series::{Figures, Metric, OfPair, Series};
pub use single::Listed;
pub(crate) use summary::{BUCKETS_A_DECADE, DAY_NS};

pub use longhaul_mesh_model::result::{
    Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, TestResult, Wanted,
};
