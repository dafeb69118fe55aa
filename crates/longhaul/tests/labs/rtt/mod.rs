//! `longhaul rtt` over routers.

pub(crate) mod hops;
pub(crate) mod way;
