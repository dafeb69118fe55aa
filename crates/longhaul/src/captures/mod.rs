//! Captures as commands open, merge and write them.

pub(crate) mod file;
pub(crate) mod found;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod source;
