//! Where each lost packet was lost.
//!
//! The loss map says which packets never arrived. [`Evidence`] says where single packets were dropped, [`Total`]s say how many
//! drops a counter counted at a location. [`attribute`] joins them; losses that neither explains are reported as
//! [`Location::Unexplained`](longhaul_result::Location).

mod attribute;
mod evidence;

pub use attribute::{Attribution, Loss, Losses, StreamLosses, attribute};
pub use evidence::{Evidence, EvidenceRecorder, MAX_CLASSES, Sight, Total, TotalScope};
