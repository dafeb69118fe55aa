//! Results as one HTML file: plots as SVG, tables, no script, nothing from elsewhere, so that it opens anywhere and still does
//! in ten years.

mod about;
mod bars;
mod colour;
mod page;
pub mod tcp_goodput;
pub mod udp_loss;

pub use about::{About, Host};
