//! Virtual segmentation: which wire packets a super-packet stands for, and the headers of any run of them.

mod error;
mod frame;
pub(crate) mod layers;
mod segment;

pub use error::ShapeError;
pub use frame::Shape;
pub use segment::{PieceHeader, SegmentError, Segmenter};

/// Headers of a segment at most. Ethernet, two tags, IPv6 and TCP with all options take 122 bytes; VXLAN over IPv6 adds 70.
pub const MAX_HEADER_BYTES: usize = 256;
