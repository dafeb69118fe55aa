//! A mix of frames: what a host hears on a network, most of which is not for it.
//!
//! A [`MixSpec`] is the text form: classes with weights, sizes. A [`Plan`] has the frames of it as bytes, well formed and with
//! checksums that are right, and says which one is the n-th: the same for the same seed, whatever sends them.
//! A [`Mixer`] sends them by an interface, a [`StreamReceiver`] counts the numbered stream of it at its target.
//!
//! Spec, plan and frames are pure: no interface, no socket, no clock. Source of the classes: NIMA (Maupin and Sandén, CTU-CS-2005-005), section 3.

mod draw;
mod engine;
mod frames;
mod kind;
mod plan;
mod receiver;
mod sending;
mod spec;

pub use draw::{Alias, Entry, draw};
pub use engine::{EngineError, EngineKind};
pub use kind::{Framing, Kind};
pub use plan::{MOST_TEMPLATES, Numbering, Plan, PlanError, Target, Template};
pub use receiver::{StreamReceiver, StreamReceiverError};
pub use sending::{ClassResult, MixAmount, MixProgress, MixResult, Mixer, StreamResult};
pub use spec::{Class, FCS_BYTES, LEAST_BYTES, MOST_BYTES, MixError, MixSpec, Sizes, Span};
