//! What is changed on this host for a while, and is as it was before in the end, whatever happens.
//!
//! All modules beside this one are below it: they know nothing of changes.

pub mod cgroup;
pub mod guard;
pub mod nic_stamps;
pub mod receive_settings;
pub mod rps;
mod sysctls;
