//! A host whose interface is polled at intervals, as that of a NIC which moderates its interrupts.
//!
//! A veth hands frames over without a queue, unless GRO is on at the receiving end and TSO off at the sending one: then they
//! wait in a ring of 256 (`VETH_RING_SIZE`) until NAPI polls it. `napi_defer_hard_irqs` and `gro_flush_timeout` have it polled by
//! a timer, and a ring that is full by then drops what comes. Source: `drivers/net/veth.c`,
//! `Documentation/networking/napi.rst` ("Software IRQ coalescing").

use std::fs;

use longhaul_kernel::ethtool;
use longhaul_kernel::mounts::{fresh_sysfs, private_mounts};
use longhaul_units::Nanos;

use crate::lab::{Lab, LabError};
use crate::plan::HOST_INTERFACE;

/// Polls that may find nothing before interrupts are on again: the greatest that the kernel takes (a signed number), as a host
/// that polls does so for as long as it is up.
const IDLE_POLLS: &str = "2147483647";
/// What keeps frames from the ring where the sending end has it.
const TSO_FEATURES: [&str; 4] =
    ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"];

impl Lab {
    /// From now on the interface of `host` is polled once each `interval`, and 256 frames, the ring of a veth, wait in between at most.
    ///
    /// # Errors
    /// [`LabError::NoHost`], or where the kernel has no such settings (before 5.13).
    pub fn poll_receiver(&self, host: &str, interval: Nanos) -> Result<(), LabError> {
        let host = self.host(host)?;
        let off = TSO_FEATURES.map(|name| (name, false));
        self.core().enter(|| ethtool::set_features(&host.plan.port, &off))??;
        host.namespace.enter(|| {
            ethtool::set_features(HOST_INTERFACE, &[("rx-gro", true)])?;
            let refused = |reason: String| LabError::NotPolled { interface: HOST_INTERFACE.into(), reason };
            // The /sys of the machine shows the machine's interfaces.
            private_mounts().and_then(|()| fresh_sysfs()).map_err(|error| refused(error.to_string()))?;
            for (file, value) in
                [("gro_flush_timeout", interval.0.to_string()), ("napi_defer_hard_irqs", IDLE_POLLS.into())]
            {
                let path = format!("/sys/class/net/{HOST_INTERFACE}/{file}");
                fs::write(&path, value).map_err(|error| refused(format!("{path}: {error}")))?;
            }
            Ok(())
        })?
    }
}
