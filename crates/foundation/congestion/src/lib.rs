//! Facts about congestion controls: the source of each, its parameters in the paper and in Linux, the window that it holds at a
//! rate of loss, and the time that it takes to recover.
//!
//! The controls themselves are C (`crates/linux/bpf/src/congestion/controls/`). This crate has no socket, no kernel and no clock.
//!
//! | to | module |
//! |---|---|
//! | name a control and its source | [`algorithm`] |
//! | list and set its parameters | [`parameter`], [`settings`] |
//! | compute HighSpeed TCP's increase and decrease | [`highspeed`] |
//! | compute the window at a rate of loss | [`response`] |
//! | compute the AIMD table | [`aimd`] |
//! | describe a control and the table for people and programs | [`description`] |

pub mod aimd;
pub mod algorithm;
pub mod description;
pub mod highspeed;
pub mod parameter;
pub mod response;
pub mod settings;

pub use algorithm::{Algorithm, Variant};
pub use parameter::Parameter;
pub use settings::{Settings, SettingsError};
