//! The coordinator's page, its interface for programs, its metrics and its alarms, over stores with known results; and the page of the commands.

mod alarms;
#[path = "../../../longhaul/tests/common/browser.rs"]
mod browser;
mod commands;
mod common;
mod encrypted;
mod interface;
mod login;
mod look;
mod measured;
mod measured_look;
mod printed;
mod prometheus;
mod year;
