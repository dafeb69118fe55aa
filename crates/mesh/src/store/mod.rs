//! Results on disk: what a site keeps until the coordinator has confirmed it, and what the coordinator keeps.
//!
//! A site's is SQLite in WAL mode, written through to the disk; the coordinator's is that or PostgreSQL. A result has an id of its own, so it can be
//! delivered any number of times and is there once. Each step is one transaction: after `kill -9` and after a loss of power it is there or it is
//! not.

/// A question about each unit of time from `$1` on and before `$2`. With CROSS JOIN, SQLite looks up a unit after the other.
macro_rules! by_unit {
    ($($question:tt)+) => {
        concat!(
            "WITH RECURSIVE units(unit) AS (SELECT $1 UNION ALL SELECT unit + 1 FROM units WHERE unit + 1 < $2) ",
            $($question)+
        )
    };
}

mod address;
mod archive;
mod database;
mod error;
mod figures;
mod flows;
mod measurements;
mod outbox;
mod reader;
mod rollups;
mod series;
mod single;
mod summary;
mod wanted;

pub use address::{Address, AddressError};
pub(crate) use archive::Counted;
pub use archive::{Archive, Hour, Taken};
pub use error::StoreError;
pub(crate) use error::rows_left_out;
pub use figures::{Figures, Metric, OfPair};
pub(crate) use flows::HOUR_NS;
pub use outbox::{Kept, Outbox};
pub use reader::{PairSum, Point, Reader, Tested};
pub use series::Series;
pub use single::Listed;
pub use summary::Span;
pub(crate) use summary::{BUCKETS_A_DECADE, DAY_NS};

pub use longhaul_mesh_model::result::{
    Cause, Diagnosis, FileKind, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, TestFile, TestResult, Wanted,
};

/// The form of the coordinator's store. Form 1 had the names of sites in each row, form 2 no rows of 30 days of round trips and TCP, form 3 no
/// index of diagnoses, form 4 no count of what receivers delivered.
const FORM: database::Form = database::Form {
    number: 5,
    oldest: 2,
    tables: &[
        flows::FLOWS,
        flows::EARLY,
        flows::BY_RECEIVER,
        archive::RESULTS,
        measurements::ROUND_TRIPS,
        measurements::TCP,
        measurements::DIAGNOSES,
        measurements::DIAGNOSES_OF_FLOW,
        wanted::WANTED,
        summary::SPANS,
        summary::LOSSES,
        summary::SEEN,
        series::MEDIANS,
        series::DUE,
        rollups::ROLLUPS,
    ],
    beside: &[],
    fills: &[rollups::FILL],
};
