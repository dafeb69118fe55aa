//! Network interfaces: links and addresses, features, counters.

pub mod counters;
pub mod driver_settings;
pub mod driver_statistics;
pub mod ethtool;
pub mod link;
pub(crate) mod link_ioctl;
pub mod sysfs;
