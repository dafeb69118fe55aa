//! A capture of the packet headers that pass a lab's host.

use std::path::Path;

use longhaul_capture::{CaptureError, CaptureSpec, LogTargets, Running, SpoolSpec};
use longhaul_kernel::socket_filter::SocketFilter;
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_units::Bytes;

/// Ethernet, VLAN tag, IP and TCP with all options.
const SNAP_BYTES: u32 = 128;
const RING_BYTES: usize = 32 << 20;
/// Memory of blocks that wait for the disk.
const WAITING_BYTES: usize = 32 << 20;

/// Captures what passes the interface of this network namespace, which is that of the lab's `host`, into `folder`.
///
/// # Errors
/// The capture does not begin.
pub(crate) fn start(folder: &Path, host: &str) -> Result<Running, CaptureError> {
    Running::start(&CaptureSpec {
        interfaces: vec![HOST_INTERFACE.into()],
        snap_bytes: SNAP_BYTES,
        filter: SocketFilter::all(SNAP_BYTES),
        filter_text: String::new(),
        ring_bytes: RING_BYTES,
        rings: Some(1),
        waiting_bytes: WAITING_BYTES,
        promiscuous: false,
        nic_stamps: false,
        packets_most: None,
        bytes_most: None,
        stream: None,
        spool: Some(SpoolSpec {
            folder: folder.to_owned(),
            opened: None,
            replace: false,
            roll_bytes: Bytes(1 << 30),
            roll_time: None,
            keep_bytes: None,
        }),
        logging: LogTargets::default(),
        captured_by: concat!("longhaul ", env!("CARGO_PKG_VERSION")).into(),
        host: host.into(),
    })
}
