//! Results as one HTML file: plots as SVG, tables, nothing from elsewhere, so that it opens anywhere and still does in ten years.
//! No script, but for the one that lets a surface be zoomed.

mod bars;
pub mod capture;
mod colour;
mod lines;
mod page;
pub mod udp_loss;
