//! Results on disk: what a site keeps until the coordinator has confirmed it, and what the coordinator keeps.
//!
//! A site's is SQLite in WAL mode, written through to the disk; the coordinator's is that or PostgreSQL. A result has an id of its own, so it can be
//! delivered any number of times and is there once. Each step is one transaction: after `kill -9` and after a loss of power it is there or it is
//! not.

mod address;
mod archive;
mod database;
mod error;
mod flows;
mod measurements;
mod outbox;
mod reader;
mod summary;
mod wanted;

pub use address::{Address, AddressError};
pub use archive::{Archive, Hour};
pub use error::StoreError;
pub use outbox::{Kept, Outbox};
pub use reader::{PairSum, Point, Reader, Span, Tested};
pub(crate) use summary::{BUCKETS_A_DECADE, DAY_NS};

pub use longhaul_mesh_model::result::{
    Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, TestResult, Wanted,
};
