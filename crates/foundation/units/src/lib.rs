//! Time, rate and size as types, with the text forms that people type and read. Beside them: text files of bounded length, a schedule of
//! packets, lists thinned to a bounded number, control characters in foreign texts, and a limit on tables in foreign TOML.
//!
//! Nothing here reads a clock: a [`Nanos`] is an instant only because its owner says from which origin it counts.

mod histogram;
mod nearest;
pub mod pacer;
mod quantity;
mod rate;
pub mod regular_file;
#[cfg(feature = "schema")]
mod schema;
mod size;
mod terminal;
mod thinned;
mod time;
mod toml_tables;

pub use histogram::{Quantiles, TimeHistogram};
pub use nearest::nearest;
pub use quantity::{QuantityError, parse_count};
pub use rate::{BitRate, LAYER1_OVERHEAD_BYTES};
pub use regular_file::read_text;
#[cfg(feature = "schema")]
pub use schema::every_key;
pub use size::Bytes;
pub use terminal::{escaped_controls, is_obeyed, without_controls};
pub use thinned::Thinned;
pub use time::{Nanos, utc};
pub use toml_tables::{TOML_CROWDED, toml_crowded_at};
