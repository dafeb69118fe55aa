//! What `longhaul --version` prints.

use std::sync::LazyLock;

use longhaul_bpf::support;

/// Version and commit; `longhaul -V`.
pub(crate) const SHORT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("LONGHAUL_COMMIT"), ")");

/// The same, and what this build can do.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let programs = match support::not_built() {
        None => "built in".to_owned(),
        Some(why) => format!("left out: {why}"),
    };
    let assertions = if cfg!(debug_assertions) { "on" } else { "off" };
    format!("{SHORT}\nBPF programs: {programs}\ndebug assertions: {assertions}")
});
