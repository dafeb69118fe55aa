//! Results as one HTML file: plots as SVG, tables, no script, nothing from elsewhere, so that it opens anywhere and still does
//! in ten years.

mod loss;
mod page;

pub use loss::{LossBar, loss_figure, loss_table};
pub use page::{Page, escape};

/// The drawing library failed. It draws into memory, so this is a figure that has no size.
#[derive(Debug, PartialEq, Eq)]
pub struct DrawError(pub String);

impl std::fmt::Display for DrawError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot draw the figure: {}", self.0)
    }
}

impl std::error::Error for DrawError {}
