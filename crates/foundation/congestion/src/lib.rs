//! What is known of congestion controls: where each comes from, its parameters in the paper and in Linux, what window it
//! holds at a rate of loss, and how long it takes to recover.
//!
//! The controls themselves are C (`crates/linux/bpf/src/congestion/`). Here is no socket, no kernel and no clock.
//!
//! | to | module |
//! |---|---|
//! | name a control, and know its source | [`algorithm`] |
//! | know and set what it takes | [`parameter`], [`settings`] |
//! | compute HighSpeed TCP's increase and decrease | [`highspeed`] |
//! | know the window at a rate of loss | [`response`] |
//! | make the AIMD table | [`aimd`] |

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
