//! Results as people read them: as text on a terminal, and as one HTML file with plots as SVG, tables, nothing from
//! elsewhere, so that it opens anywhere and still does in ten years.
//! No script, but for the one that lets a surface be zoomed.

mod about;
mod axis;
mod bars;
pub mod capture;
mod colour;
pub mod compared;
mod lines;
pub mod mix;
mod mix_plot;
mod page;
pub mod saved;
pub mod tcp_goodput;
pub mod text;
pub mod udp_loss;

pub use about::{About, Host};
