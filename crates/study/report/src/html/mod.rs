//! Results as one HTML file with plots as SVG and tables. Nothing in it comes from elsewhere, so that it opens anywhere and
//! still does in ten years. It has no script, but for the one that zooms a surface.

mod about;
mod axis;
mod bars;
pub mod capture;
mod colour;
pub mod compared;
mod lines;
pub mod mix;
mod page;
pub mod tcp_goodput;
pub mod udp_loss;

pub use about::{About, Host};
