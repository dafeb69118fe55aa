//! Results as one HTML file: plots as SVG, tables, no script, nothing from elsewhere, so that it opens anywhere and still does
//! in ten years.

mod bars;
mod colour;
pub mod mix;
mod page;
pub mod udp_loss;
