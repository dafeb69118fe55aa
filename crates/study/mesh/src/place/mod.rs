//! Path, device or host: who loses packets in a mesh, in which direction, since when.
//!
//! A site that loses what it receives shows on all paths to it, and on no path from it; a path that loses shows alone. So loss is looked at
//! twice: by site and direction over all partners, with means that no single partner or hour can move far, and then path by path, for what no
//! site explains. What counts is loss above a path's own level at that time of day (`history.rs`).
//!
//! What the data cannot tell is said: without drop events a receiving host and its access link look alike, and so do a site and a path
//! where the site has one partner.

mod alarm;
mod history;
mod locator;

pub use alarm::{Alarm, Place, Suspect};
pub use locator::{Locator, Step};
