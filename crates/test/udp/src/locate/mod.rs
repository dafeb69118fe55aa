//! Where each lost packet was lost.
//!
//! The truth is the map of what never arrived. [`Evidence`] says of single packets where one was dropped, [`Total`]s say how many a
//! counter saw dropped at a place; [`attribute`] joins them, and what neither places stays in sight as [`Location::Unexplained`](longhaul_result::Location).

mod attribute;
pub(crate) mod evidence;

pub use attribute::{Attribution, Loss, Losses, StreamLosses, attribute};
pub use evidence::{Evidence, MAX_CLASSES, Sight, Total, TotalScope};
