//! What keeps a super-packet from being cut.

use super::MAX_HEADER_BYTES;

/// Why a super-packet cannot be cut. It could only be passed on whole, or dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// UFO, or a kind that is not known here.
    #[error("offload type {0:#04x} cannot be segmented")]
    Gso(u8),
    /// Cut into pieces of nothing.
    #[error("a super-packet with a segment size of 0")]
    SegmentSize,
    /// A header does not end within the bytes, or is none.
    #[error("a header is cut off or malformed")]
    Truncated,
    /// A protocol that is not known here, or not the one that the offload header names.
    #[error("no header of the offloaded protocol can be found")]
    Protocol,
    /// Only whole packets are cut.
    #[error("a super-packet that is an IP fragment")]
    Fragment,
    /// The checksum field is not where the protocol has it.
    #[error("the offloaded checksum is not the protocol's")]
    Checksum,
    /// More headers than [`MAX_HEADER_BYTES`].
    #[error("the headers take more than {MAX_HEADER_BYTES} bytes")]
    HeadersTooLong,
    /// More than three tunnels in each other.
    #[error("too many headers in each other")]
    TooDeep,
    /// IPv6 with stops ahead and no pseudo header's sum, so the address that its checksum covers is not known.
    #[error("a routing header hides the destination")]
    RouteAhead,
    /// 4 GiB or more, or fewer bytes than were given.
    #[error("the length of the frame is wrong")]
    Length,
}
