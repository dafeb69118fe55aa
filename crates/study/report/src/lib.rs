//! Results as people and other programs read them: as text on a terminal ([`text`]), as one HTML file with plots
//! ([`html`]), as tables in Parquet ([`parquet`]), and back from what was saved ([`saved`]).
//!
//! What is not here: files and clocks. Everything is written to what the caller opened. Nor is the text of commands whose results are of crates
//! that use Linux, or have a few lines: it is beside the command, in the binary.

mod cause;
mod equivalence;
pub mod html;
pub mod parquet;
pub mod saved;
pub mod side_by_side;
pub mod text;
