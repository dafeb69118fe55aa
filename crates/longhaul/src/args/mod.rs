//! Arguments that several commands share.

pub(crate) mod engine;
pub(crate) mod interval;
pub(crate) mod key;
pub(crate) mod listen;
pub(crate) mod marks;
pub(crate) mod quantity;
pub(crate) mod roll;
