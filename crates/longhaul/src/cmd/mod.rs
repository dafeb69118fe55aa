//! A module for each command: its arguments, and a `run` that reads like the recipe.

pub(crate) mod analyze;
pub(crate) mod capture;
pub(crate) mod cc;
pub(crate) mod compare;
pub(crate) mod completion;
pub(crate) mod convert;
pub(crate) mod diagnose;
pub(crate) mod emulate;
pub(crate) mod filter;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod lab;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod mix;
pub(crate) mod pace;
pub(crate) mod paths;
pub(crate) mod profile;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod tcp;
pub(crate) mod test;
pub(crate) mod tune;
pub(crate) mod udp;
pub(crate) mod verify;
pub(crate) mod watch;
