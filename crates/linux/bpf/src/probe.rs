//! Whether BPF programs will work here, known before they are needed.

use crate::BpfError;
use crate::drops::{DropOptions, Drops, Flow};

/// What the running kernel lets the programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// [`Drops::reads_paged_payload`].
    pub paged_payload: bool,
    /// Whether addresses of the kernel can be named; a drop without a reason of its own cannot be placed otherwise.
    pub symbols: bool,
}

/// Loads and attaches the programs, as a test would, and takes them away again: nothing less is certain.
///
/// # Errors
/// What is missing, and how to get it.
pub fn probe() -> Result<Support, BpfError> {
    let nobody = Flow { port: 0, cookie: 0 };
    let drops = Drops::attach(&[nobody], &DropOptions { ring_bytes: 1 << 16, ..DropOptions::default() })?;
    let symbols = crate::symbols::Symbols::read().is_ok_and(|symbols| !symbols.is_empty());
    Ok(Support { paged_payload: drops.reads_paged_payload(), symbols })
}
