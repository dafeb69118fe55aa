//! Lists of all sockets. Where other users have opened so many that a list takes long, the next one waits ten times as long.

use std::io;

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::sock_diag::{Dumped, InetFilter, InetSocket, InetSockets, LONG_DUMP};
use longhaul_result::Caveat;
use longhaul_units::Nanos;

use crate::caveats;
use crate::selection::after;

/// A list that took so much CPU time has others wait. So has each that was given up. Servers with thousands of connections stay below.
const LONG_LIST: Nanos = Nanos::from_millis(500);

/// Lists the sockets again and again.
#[derive(Debug)]
pub(crate) struct Dumps {
    sockets: InetSockets,
    /// Not before are they listed again.
    next: Nanos,
    were_long: bool,
    error: Option<String>,
}

impl Dumps {
    pub(crate) fn of(sockets: InetSockets) -> Self {
        Self { sockets, next: Nanos::ZERO, were_long: false, error: None }
    }

    /// As [`Self::dump`], for the first one, without which there is nothing to watch.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn first(&mut self, filter: InetFilter, each: impl FnMut(&InetSocket<'_>)) -> io::Result<bool> {
        Ok(self.list(filter, each)? != Dumped::Part)
    }

    /// Calls `each` for every socket; for none where the last list took so long that it is too early for another. Returns whether no socket is missing.
    pub(crate) fn dump(&mut self, filter: InetFilter, each: impl FnMut(&InetSocket<'_>)) -> bool {
        if monotonic() < self.next {
            return false;
        }
        match self.list(filter, each) {
            Ok(dumped) => dumped == Dumped::Whole,
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
                false
            }
        }
    }

    fn list(&mut self, filter: InetFilter, each: impl FnMut(&InetSocket<'_>)) -> io::Result<Dumped> {
        let began = thread_cpu_time();
        let dumped = self.sockets.dump(filter, each)?;
        self.wait_after(monotonic(), thread_cpu_time().saturating_sub(began), dumped);
        Ok(dumped)
    }

    fn wait_after(&mut self, now: Nanos, took: Nanos, dumped: Dumped) {
        // The rest of a list that was given up may be short.
        if took >= LONG_LIST || (took >= LONG_DUMP && dumped == Dumped::Part) {
            self.were_long = true;
            self.next = after(now, took);
        }
    }

    /// What was missed.
    pub(crate) fn caveat(&self) -> Option<Caveat> {
        if let Some(error) = &self.error {
            let message = format!("some samples could not be taken: {error}");
            return Some(Caveat::new(caveats::SAMPLES_MISSING, message, "run it again"));
        }
        let message = "this host has so many sockets that the kernel takes long to list them: some samples were not \
                       taken, and some sockets may not be shown";
        let remedy = "end the programs that have so many sockets open (ss -s counts them)";
        self.were_long.then(|| Caveat::new(caveats::SAMPLES_MISSING, message, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_list_none_is_made_for_ten_times_as_long() {
        let mut dumps = Dumps::of(InetSockets::udp().unwrap());
        dumps.wait_after(monotonic(), Nanos::from_millis(200), Dumped::Whole);
        dumps.wait_after(monotonic(), Nanos::from_millis(20), Dumped::Part);
        assert!(dumps.caveat().is_none());
        let _bound = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut shown = 0;
        dumps.dump(InetFilter::All, |_| shown += 1);
        assert!(shown > 0);
        let now = monotonic();
        dumps.wait_after(now, Nanos::from_secs(60), Dumped::Part);
        assert_eq!(dumps.next, now.saturating_add(Nanos::from_secs(600)));
        assert!(!dumps.dump(InetFilter::All, |_| panic!("listed")));
        assert_eq!(dumps.caveat().unwrap().code.as_str(), "samples_missing");
    }
}
