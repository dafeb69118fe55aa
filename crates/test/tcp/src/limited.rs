//! What limits a flow, by the kernel's clocks.
//!
//! The kernel has three clocks (`tcp_chrono` in `net/ipv4/tcp_output.c`): *busy* runs while data is unacknowledged or waits to be
//! sent; within it, *rwnd limited* runs while the peer's window holds back data, and *sndbuf limited* while the application could
//! write more if the send buffer were larger. The samples divide the rest of the busy time:
//!
//! - all that the send buffer holds, in flight and waiting, fits the congestion window, and the buffer was full within the last round
//!   trip: the writer fills it whenever ACKs make room, and what it wrote is only being paced out. The send buffer limits the flow.
//! - less than a segment waits (`notsent_bytes`), and the congestion window has room: the last write is still in flight, and the
//!   flow only looks busy. The application limits the flow.
//! - the data in flight fills the peer's window (`snd_wnd`), but not the congestion window: the receiver's window limits the flow,
//!   which pacing hides from the kernel's clock.
//! - otherwise TCP itself holds back: congestion window, pacing, recovery.
//!
//! The clocks tick in jiffies of up to 10 ms, so they are summed up over the whole time and only then compared with it.
//!
//! Differences from ss(8): it shows the other two clocks as shares of busy, not of the whole time.

use serde::{Deserialize, Serialize};

use super::info::{TcpInfo, fields};

/// Times of a flow, microseconds, summed over pairs of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitedTimes {
    /// The whole time.
    pub elapsed_us: u64,
    /// `tcpi_busy_time`.
    pub busy_us: u64,
    /// `tcpi_rwnd_limited`.
    pub receive_window_us: u64,
    /// `tcpi_sndbuf_limited`.
    pub send_buffer_us: u64,
    /// Busy without the other two clocks: nothing waited to be sent, and the windows had room.
    pub nothing_waits_us: u64,
    /// Busy without the other two clocks: the data in flight filled the peer's window.
    pub window_full_us: u64,
    /// Busy without the other two clocks: the send buffer had just been full, and the congestion window had room for all of it.
    #[serde(default)]
    pub buffer_fits_us: u64,
}

/// Shares of the time, each from 0 to 1. Their sum is 1, or 0 if there was no time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitedBy {
    /// TCP held back: congestion window, pacing, recovery.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub congestion_window: f64,
    /// The receiver's window.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub receive_window: f64,
    /// The sender's buffer: it was full, or had just been and held less than the congestion window.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub send_buffer: f64,
    /// The sending application.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub application: f64,
}

impl LimitedTimes {
    /// Adds the time between two samples of a flow, `elapsed_us` apart; `buffer_was_full`: within the round trip before `after`, by the
    /// kernel's clock. `None` if the kernel lacks the clocks (before 4.10).
    pub fn add(&mut self, before: &TcpInfo, after: &TcpInfo, elapsed_us: u64, buffer_was_full: bool) -> Option<()> {
        let rise = |field| Some(after.get(field)?.saturating_sub(before.get(field)?));
        let (busy, receive_window) = (rise(fields::BUSY_TIME)?, rise(fields::RWND_LIMITED)?);
        let send_buffer = rise(fields::SNDBUF_LIMITED)?;
        let rest = busy.saturating_sub(receive_window).saturating_sub(send_buffer);
        let nothing_waits = |info: &TcpInfo| {
            let waits = info.get(fields::NOTSENT_BYTES).is_none_or(|bytes| bytes >= info.value(fields::SND_MSS).max(1));
            !waits && info.value(fields::UNACKED) < info.value(fields::SND_CWND)
        };
        let window_full = |info: &TcpInfo| {
            let (mss, window) = (info.value(fields::SND_MSS), info.value(fields::SND_WND));
            let bytes = |packets: u64| packets.saturating_mul(mss);
            window > 0
                && bytes(info.value(fields::UNACKED).saturating_add(2)) > window
                && bytes(info.value(fields::SND_CWND)) > window
        };
        let buffer_fits = |info: &TcpInfo| {
            let bytes = |packets: u64| packets.saturating_mul(info.value(fields::SND_MSS));
            let waiting = info.get(fields::NOTSENT_BYTES);
            waiting.is_some_and(|waiting| {
                bytes(info.value(fields::UNACKED)).saturating_add(waiting) < bytes(info.value(fields::SND_CWND))
            })
        };
        if window_full(after) {
            self.window_full_us = self.window_full_us.saturating_add(rest);
        } else if buffer_was_full && buffer_fits(before) && buffer_fits(after) {
            self.buffer_fits_us = self.buffer_fits_us.saturating_add(rest);
        } else if nothing_waits(before) && nothing_waits(after) {
            // At both ends of the time: a writer that is late only once is sometimes caught at one of them.
            self.nothing_waits_us = self.nothing_waits_us.saturating_add(rest);
        }
        self.elapsed_us = self.elapsed_us.saturating_add(elapsed_us);
        self.busy_us = self.busy_us.saturating_add(busy);
        self.receive_window_us = self.receive_window_us.saturating_add(receive_window);
        self.send_buffer_us = self.send_buffer_us.saturating_add(send_buffer);
        Some(())
    }

    /// Adds another flow.
    pub fn merge(&mut self, other: &Self) {
        let add = |to: &mut u64, from: u64| *to = to.saturating_add(from);
        add(&mut self.elapsed_us, other.elapsed_us);
        add(&mut self.busy_us, other.busy_us);
        add(&mut self.receive_window_us, other.receive_window_us);
        add(&mut self.send_buffer_us, other.send_buffer_us);
        add(&mut self.nothing_waits_us, other.nothing_waits_us);
        add(&mut self.window_full_us, other.window_full_us);
        add(&mut self.buffer_fits_us, other.buffer_fits_us);
    }

    /// The times since they were `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            elapsed_us: self.elapsed_us.saturating_sub(before.elapsed_us),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            receive_window_us: self.receive_window_us.saturating_sub(before.receive_window_us),
            send_buffer_us: self.send_buffer_us.saturating_sub(before.send_buffer_us),
            nothing_waits_us: self.nothing_waits_us.saturating_sub(before.nothing_waits_us),
            window_full_us: self.window_full_us.saturating_sub(before.window_full_us),
            buffer_fits_us: self.buffer_fits_us.saturating_sub(before.buffer_fits_us),
        }
    }

    /// The shares of the time.
    pub fn shares(&self) -> LimitedBy {
        if self.elapsed_us == 0 {
            return LimitedBy::default();
        }
        let busy = self.busy_us.min(self.elapsed_us);
        let receive_window = self.receive_window_us.min(busy);
        let send_buffer = self.send_buffer_us.min(busy - receive_window);
        let rest = busy - receive_window - send_buffer;
        let window_full = self.window_full_us.min(rest);
        let buffer_fits = self.buffer_fits_us.min(rest - window_full);
        let nothing_waits = self.nothing_waits_us.min(rest - window_full - buffer_fits);
        let share = |part: u64| part as f64 / self.elapsed_us as f64;
        LimitedBy {
            congestion_window: share(rest - window_full - buffer_fits - nothing_waits),
            receive_window: share(receive_window + window_full),
            send_buffer: share(send_buffer + buffer_fits),
            application: share(self.elapsed_us - busy + nothing_waits),
        }
    }
}

impl LimitedBy {
    /// The greatest share with its name in a result; `None` if there is none.
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
            (fields::SND_MSS, 1_000),
        ] {
            info.set(field, value);
        }
        info
    }

    fn shares(before: TcpInfo, after: TcpInfo) -> LimitedBy {
        let mut times = LimitedTimes::default();
        times.add(&before, &after, 1_000, false).unwrap();
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
        // All written data is in flight, and there is room for more.
        assert_eq!(of(1_000, 0, 0, 0, 3).application, 1.0);
        // The data in flight fills the window, so it does not matter that nothing waits.
        assert_eq!(of(1_000, 0, 0, 0, 10).congestion_window, 1.0);
        // Part of a segment waits for more.
        assert_eq!(of(1_000, 0, 0, 999, 3).application, 1.0);
        assert_eq!(of(1_000, 900, 0, 5_000, 3).foremost(), Some(("receive_window", 0.9)));
        assert_eq!(LimitedBy::default().foremost(), None);
    }

    /// A small buffer is paced out within a window that never fills: the kernel's clock stands meanwhile, though the writer waits for
    /// ACKs. The same samples without a buffer that was full are pacing; with more in the buffer than the window takes, the window.
    #[test]
    fn a_buffer_that_fits_the_window_is_the_limit_where_it_was_full() {
        let of = |notsent, unacked, buffer_was_full| {
            let mut times = LimitedTimes::default();
            let after = info(1_000, 0, 400, notsent, unacked);
            times.add(&info(0, 0, 0, notsent, unacked), &after, 1_000, buffer_was_full).unwrap();
            times.shares()
        };
        assert_eq!(of(4_000, 3, true), LimitedBy { send_buffer: 1.0, ..LimitedBy::default() });
        assert_eq!(of(4_000, 3, false), LimitedBy { send_buffer: 0.4, congestion_window: 0.6, ..LimitedBy::default() });
        assert_eq!(of(7_000, 3, true), LimitedBy { send_buffer: 0.4, congestion_window: 0.6, ..LimitedBy::default() });
        assert_eq!(of(0, 3, true), LimitedBy { send_buffer: 1.0, ..LimitedBy::default() });
        assert_eq!(of(0, 3, false), LimitedBy { send_buffer: 0.4, application: 0.6, ..LimitedBy::default() });
    }

    #[test]
    fn a_window_that_is_full_counts_though_pacing_hides_it() {
        let full = |unacked, window: u64| {
            let mut after = info(1_000, 0, 0, 5_000, unacked);
            after.set(fields::SND_WND, window);
            shares(info(0, 0, 0, 5_000, unacked), after)
        };
        assert_eq!(full(4, 5_000).receive_window, 1.0);
        assert_eq!(full(2, 5_000).congestion_window, 1.0);
        // The congestion window is the smaller one.
        assert_eq!(full(10, 11_000).congestion_window, 1.0);
    }

    /// Clocks that tick every 10 ms and are read every 10 ms jump by two ticks now and then.
    #[test]
    fn coarse_clocks_lose_nothing() {
        let mut times = LimitedTimes::default();
        for (before, after) in [(0, 0), (0, 20_000), (20_000, 20_000), (20_000, 40_000)] {
            times.add(&info(before, 0, 0, 5_000, 10), &info(after, 0, 0, 5_000, 10), 10_000, false).unwrap();
        }
        assert_eq!(times.shares().congestion_window, 1.0);
    }

    #[test]
    fn shares_add_up_whatever_the_clocks_say() {
        let shares = shares(info(0, 0, 0, 1, 1), info(u64::MAX, u64::MAX, u64::MAX, 1, 1));
        assert_eq!((shares.receive_window, shares.application), (1.0, 0.0));
        assert_eq!(LimitedTimes::default().add(&TcpInfo::default(), &TcpInfo::default(), 5, true), None);
        assert_eq!(LimitedTimes::default().shares(), LimitedBy::default());
    }
}
