//! What a driver's own counters (`ethtool -S`) mean, in one vocabulary for all drivers.
//!
//! The same name means different things: `rx_missed_errors` is a full ring at one driver and a link error at another. Each
//! [`Row`] of `table.tsv` says what one counter of one driver means, and where in the driver's source that is seen. A counter that is not in
//! the table has no known meaning: show it, do not add it up.
//!
//! What is not here: reading the counters ([`crate::ethtool`]), and placing a loss.
//!
//! Source: the drivers, as of Linux 6.13; `Documentation/networking/statistics.rst`;
//! `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`.

use std::sync::LazyLock;

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// Packets dropped on receive as no descriptor of the ring was free: the host takes them too slowly.
    RingFull,
    /// Packets dropped on receive as the NIC's own memory was full: the bus or the ring was too slow, or paused.
    DeviceMemoryFull,
    /// Packets dropped on receive as the driver had no memory (pages, skbs) for them.
    NoMemory,
    /// Packets dropped on receive by the driver, for reasons that it does not tell apart (no memory, an XDP program, an error).
    DriverDrop,
    /// Packets that found no free descriptor and waited in the NIC's own memory. Nothing is lost by that alone.
    RingWasEmpty,
    /// Times that the driver could not refill the ring at once. Nothing is lost by that alone; a full ring may follow.
    RefillFailed,
    /// Frames with a bad checksum (FCS), dropped: the cable or the transceiver.
    CrcError,
    /// Frames too short, too long, or not as long as they say, dropped.
    LengthError,
    /// Frames with symbol, coding or alignment errors, or errors that the driver does not tell apart, dropped.
    ReceiveError,
    /// Packets whose IP, TCP or UDP checksum the NIC found bad. They go up; the stack checks again and drops.
    ChecksumError,
    /// Packets that a filter of the NIC dropped: not for this host, wrong VLAN, denied by a rule.
    FilterDrop,
    /// Packets that an XDP program dropped.
    XdpDrop,
    /// Packets dropped after an XDP program that erred, or that sent or redirected them to where there was no room.
    XdpError,
    /// Packets dropped on sending.
    TransmitDrop,
    /// Errors on sending that the driver does not tell from retries: collisions, underruns, lost carrier.
    TransmitError,
    /// Times that the transmit ring was full and the stack had to wait. Nothing is lost by that.
    TransmitQueueFull,
    /// Pause frames received: the other end stopped this one. Nothing is lost by that.
    PauseReceived,
    /// Pause frames sent: this end stopped the other. Nothing is lost by that.
    PauseSent,
    /// Packets that the provider of a virtual machine delayed or dropped, as its allowance was used up.
    ProviderLimit,
}

impl Meaning {
    /// Whether it is about what this host sends.
    pub fn is_transmit(self) -> bool {
        matches!(self, Self::TransmitDrop | Self::TransmitError | Self::TransmitQueueFull | Self::PauseReceived)
    }
}

/// One counter of one driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The driver's name, as `ethtool -i` has it.
    pub driver: &'static str,
    /// The counter's name; `*` stands for a number, such as a queue's.
    pub pattern: &'static str,
    /// What it counts.
    pub meaning: Meaning,
    /// Where that is seen: a file of the kernel and a symbol in it.
    pub source: &'static str,
    /// Its packets are also in the counter of that pattern: do not add both. A queue's counter is part of the total.
    pub part_of: Option<&'static str>,
}

/// Every counter whose meaning is known: `table.tsv`.
pub static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let lines = include_str!("table.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("table.tsv: {line}"))).collect()
});

fn parse(line: &'static str) -> Option<Row> {
    let [driver, pattern, meaning, whole, source] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
    let deserializer: serde::de::value::StrDeserializer<'_, Error> = meaning.into_deserializer();
    let meaning = Meaning::deserialize(deserializer).ok()?;
    Some(Row { driver, pattern, meaning, source, part_of: (whole != "-").then_some(whole) })
}

/// The row for the counter `name` of `driver`; `None` where its meaning is not known.
pub fn row(driver: &str, name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.driver == driver && matches(row.pattern, name))
}

/// Whether `name` is as `pattern` says, `*` standing for one or more digits.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && matches(after, &rest[digits..])
}

#[cfg(test)]
mod tests;
