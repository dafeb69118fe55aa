//! One file a command: its arguments, and a `run` that reads like the recipe.

pub(crate) mod cc;
pub(crate) mod cc_list;
pub(crate) mod cc_load;
pub(crate) mod cc_show;
pub(crate) mod cc_table;
pub(crate) mod completion;
pub(crate) mod emulate;
pub(crate) mod engine_args;
pub(crate) mod host;
pub(crate) mod key;
pub(crate) mod lab;
pub(crate) mod lab_run;
pub(crate) mod lab_run_text;
pub(crate) mod man;
pub(crate) mod paths;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod udp;
pub(crate) mod udp_live;
pub(crate) mod udp_saved;
pub(crate) mod udp_text;
