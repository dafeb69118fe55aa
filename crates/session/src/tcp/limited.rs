//! What limits a flow, by the kernel's own clocks.
//!
//! The kernel keeps three (`tcp_chrono` in `net/ipv4/tcp_output.c`): *busy* runs while anything is sent and not yet acknowledged or
//! waits to be sent; within it *rwnd limited* while the peer's window holds back what waits, and *sndbuf limited* while the
//! application could write more if the send buffer were larger. What is left of busy is TCP's own holding back: congestion window,
//! pacing, recovery; or nothing at all waits, and it only looks busy because the last write is still on its way. The last is the
//! application's: a sample tells it, as then nothing waits (`notsent_bytes` is 0) and the congestion window has room.
//!
//! Differences from ss(8): it shows the three clocks against busy, not against the whole time.

use serde::{Deserialize, Serialize};

use super::info::{TcpInfo, fields};

/// Time that a flow was limited by each, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitedTimes {
    /// TCP's own holding back: congestion window, pacing, recovery.
    pub congestion_window_us: u64,
    /// The receiver's window: its application reads too slowly, or its buffer is too small.
    pub receive_window_us: u64,
    /// The sender's buffer: too small for what is on its way.
    pub send_buffer_us: u64,
    /// The sending application had nothing to send.
    pub application_us: u64,
}

/// Shares of the time, each 0 to 1; together 1, or all 0 where there was no time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitedBy {
    /// TCP's own holding back: congestion window, pacing, recovery.
    pub congestion_window: f64,
    /// The receiver's window.
    pub receive_window: f64,
    /// The sender's buffer.
    pub send_buffer: f64,
    /// The sending application.
    pub application: f64,
}

impl LimitedTimes {
    /// Adds the time between two samples of a flow, `elapsed_us` apart. `None` where the kernel has no such clocks (before 4.10).
    pub fn add(&mut self, before: &TcpInfo, after: &TcpInfo, elapsed_us: u64) -> Option<()> {
        let rise = |field| Some(after.get(field)?.saturating_sub(before.get(field)?).min(elapsed_us));
        let busy = rise(fields::BUSY_TIME)?;
        let receive_window = rise(fields::RWND_LIMITED)?.min(busy);
        let send_buffer = rise(fields::SNDBUF_LIMITED)?.min(busy - receive_window);
        let rest = busy - receive_window - send_buffer;
        let nothing_waits = |info: &TcpInfo| {
            info.get(fields::NOTSENT_BYTES) == Some(0) && info.value(fields::UNACKED) < info.value(fields::SND_CWND)
        };
        // At both ends of the time, as a writer that is merely late once is found there by chance.
        let idle = nothing_waits(before) && nothing_waits(after) && send_buffer == 0;
        self.receive_window_us += receive_window;
        self.send_buffer_us += send_buffer;
        *if idle { &mut self.application_us } else { &mut self.congestion_window_us } += rest;
        self.application_us += elapsed_us - busy;
        Some(())
    }

    /// Adds another flow's.
    pub fn merge(&mut self, other: &Self) {
        self.congestion_window_us = self.congestion_window_us.saturating_add(other.congestion_window_us);
        self.receive_window_us = self.receive_window_us.saturating_add(other.receive_window_us);
        self.send_buffer_us = self.send_buffer_us.saturating_add(other.send_buffer_us);
        self.application_us = self.application_us.saturating_add(other.application_us);
    }

    /// The shares of all that time.
    pub fn shares(&self) -> LimitedBy {
        let parts = [self.congestion_window_us, self.receive_window_us, self.send_buffer_us, self.application_us];
        let all: f64 = parts.iter().map(|part| *part as f64).sum();
        let share = |part: u64| if all > 0.0 { part as f64 / all } else { 0.0 };
        LimitedBy {
            congestion_window: share(parts[0]),
            receive_window: share(parts[1]),
            send_buffer: share(parts[2]),
            application: share(parts[3]),
        }
    }
}

impl LimitedBy {
    /// The greatest share, by its name in a result; `None` where there are none.
    pub fn foremost(&self) -> Option<(&'static str, f64)> {
        let shares = [
            ("congestion_window", self.congestion_window),
            ("receive_window", self.receive_window),
            ("send_buffer", self.send_buffer),
            ("application", self.application),
        ];
        shares.into_iter().filter(|(_, share)| *share > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(busy: u64, rwnd: u64, sndbuf: u64, notsent: u64, unacked: u64) -> TcpInfo {
        let mut info = TcpInfo::default();
        for (field, value) in [
            (fields::BUSY_TIME, busy),
            (fields::RWND_LIMITED, rwnd),
            (fields::SNDBUF_LIMITED, sndbuf),
            (fields::NOTSENT_BYTES, notsent),
            (fields::UNACKED, unacked),
            (fields::SND_CWND, 10),
        ] {
            info.set(field, value);
        }
        info
    }

    fn shares(before: TcpInfo, after: TcpInfo) -> LimitedBy {
        let mut times = LimitedTimes::default();
        times.add(&before, &after, 1_000).unwrap();
        times.shares()
    }

    #[test]
    fn each_limit_is_called_by_its_name() {
        let of = |busy, rwnd, sndbuf, notsent, unacked| {
            shares(info(0, 0, 0, notsent, unacked), info(busy, rwnd, sndbuf, notsent, unacked))
        };
        assert_eq!(of(1_000, 0, 0, 5_000, 10).congestion_window, 1.0);
        assert_eq!(
            of(1_000, 900, 0, 5_000, 3),
            LimitedBy { receive_window: 0.9, congestion_window: 0.1, ..LimitedBy::default() }
        );
        assert_eq!(of(1_000, 0, 1_000, 0, 3).send_buffer, 1.0);
        assert_eq!(of(0, 0, 0, 0, 0).application, 1.0);
        // All that was written is on its way, and there is room for more.
        assert_eq!(of(1_000, 0, 0, 0, 3).application, 1.0);
        // It fills the window: that it has nothing more at hand says nothing.
        assert_eq!(of(1_000, 0, 0, 0, 10).congestion_window, 1.0);
        assert_eq!(of(1_000, 900, 0, 5_000, 3).foremost(), Some(("receive_window", 0.9)));
        assert_eq!(LimitedBy::default().foremost(), None);
    }

    #[test]
    fn shares_add_up_whatever_the_clocks_say() {
        let shares = shares(info(0, 0, 0, 1, 1), info(u64::MAX, u64::MAX, u64::MAX, 1, 1));
        assert_eq!((shares.receive_window, shares.application), (1.0, 0.0));
        assert_eq!(LimitedTimes::default().add(&TcpInfo::default(), &TcpInfo::default(), 5), None);
        assert_eq!(LimitedTimes::default().shares(), LimitedBy::default());
    }
}
