//! Background traffic: a mix of many kinds of frames, mostly addressed to other hosts.
//!
//! A [`MixSpec`] is the text form: classes with weights and sizes. A [`Plan`] has the frames of a mix as bytes, well formed and with correct
//! checksums, and says which one is the n-th: the same for the same seed, with either engine.
//! A [`Mixer`] sends them through an interface, and a [`StreamReceiver`] counts the numbered stream at its target.
//!
//! Spec, plan and frames are pure: no interface, no socket, no clock. Source of the classes: NIMA (Maupin and Sandén, CTU-CS-2005-005), section 3.

pub mod caveats;
mod draw;
mod engine;
mod frames;
mod kind;
mod plan;
mod receiver;
mod sending;
mod spec;
mod target;

pub use draw::{Alias, Entry, draw};
pub use engine::{EngineError, EngineKind};
pub use kind::{Framing, Kind};
pub use plan::{MOST_TEMPLATES, Numbering, Plan, PlanError, Template};
pub use receiver::{StreamReceiver, StreamReceiverError};
pub use sending::{ClassResult, MixAmount, MixProgress, MixResult, Mixer, StreamResult};
pub use spec::{Class, FCS_BYTES, LEAST_BYTES, MOST_BYTES, MixError, MixSpec, Sizes, Span};
pub use target::Target;
