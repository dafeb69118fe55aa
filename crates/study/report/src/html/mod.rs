//! Results as one HTML file with plots as SVG and tables. It loads nothing from elsewhere, so it opens anywhere, also
//! in ten years. Its only scripts zoom figures over time and surfaces, and save figures.

mod about;
mod axis;
mod bars;
pub mod capture;
mod colour;
pub mod compared;
pub mod diagnosed;
mod digits;
pub mod findings;
mod lines;
pub mod mix;
pub mod over_time;
pub(crate) mod page;
pub mod points;
pub mod round_trips;
pub mod series;
pub mod sweep;
pub(crate) mod table;
pub mod tcp_goodput;
pub mod udp_loss;

pub use about::{About, AboutHost, Host};
