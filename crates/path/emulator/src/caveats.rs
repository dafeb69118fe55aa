//! Codes of the caveats of an emulated path: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Packets left the emulator later than the path says.
    EMULATOR_LATE = "emulator_late";
    /// Packets were due faster than the emulator could send them, and the path's clock waited for it.
    EMULATOR_SLOWED = "emulator_slowed";
    /// Frames arrived faster than the emulator could receive them.
    EMULATOR_OVERRUN = "emulator_overrun";
    /// Frames found the payload memory full.
    EMULATOR_MEMORY_FULL = "emulator_memory_full";
    /// The kernel refused to send frames, or frames were too long.
    EMULATOR_SEND_FAILED = "emulator_send_failed";
    /// An interface of the emulator is down or removed.
    PORT_DOWN = "port_down";
}
