//! When a run says nothing of the fault: the machine that emulates it had other things to do.
//!
//! What is not here: a CPU that the fault itself takes. That is what a diagnosis has to see.

use longhaul_emulator::Status;
use longhaul_units::Nanos;
use serde_json::Value;

/// A tenth: of the round trip, by which the emulator may be late (99 % of the packets); of a test's time, for which its threads may wait for a
/// CPU. A test that lacks more measures the machine.
const SHARE: u64 = 10;
/// A thread that rests for half of the time makes good in it what it waited for: its socket holds the data meanwhile.
const RESTS: u64 = 2;

/// Why the emulator spoiled a run, if it did.
pub(super) fn by_emulator(status: &Status, rtt: Nanos) -> Option<String> {
    let lost = status.own_fault.total();
    if lost > 0 {
        return Some(format!("the emulator lost {lost} packets of its own"));
    }
    let late = Nanos(status.lateness.p99_ns);
    (late > Nanos(rtt.0 / SHARE)).then(|| format!("the emulator was late by {late}, the machine was busy"))
}

/// Why the JSON of a test or of a diagnosis is void, if its threads had no CPU: those of TCP waited for one, or UDP was sent at less than was
/// asked, and then came in bursts, as its thread waited.
pub(super) fn waited(said: &str) -> Option<String> {
    let said: Value = serde_json::from_str(said).ok()?;
    let result = &said["result"];
    let runs = result["evidence"]["runs"].as_array().into_iter().flatten();
    let streams = result["streams"].as_array().into_iter().flatten();
    let concerned = runs.chain(streams).filter(|test| test["kind"] != "udp" || is_slow(test));
    let (waited, all) =
        concerned.flat_map(|test| ["sender_cpu", "receiver_cpu"].map(|end| &test[end])).find_map(|cpu| {
            let number = |key: &str| cpu[key].as_u64();
            let (waited, all, ran) = (number("run_delay_ns")?, number("elapsed_ns")?, number("cpu_time_ns")?);
            (waited > all / SHARE && waited.saturating_add(ran) > all / RESTS).then_some((waited, all))
        })?;
    Some(format!("a thread of the test waited {} of {} for a CPU", Nanos(waited).rounded(), Nanos(all).rounded()))
}

/// Whether UDP was sent a tenth slower than asked.
fn is_slow(test: &Value) -> bool {
    let rates = test["sent_bps"].as_u64().zip(test["asked_bps"].as_u64());
    rates.is_some_and(|(sent, asked)| sent < asked - asked / SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test whose threads waited for half a second of four.
    #[test]
    fn a_test_whose_cpu_was_taken_is_void() {
        let said = |kind: &str, waited: u64, sent: u64| {
            let cpu = format!(r#"{{"cpu_time_ns":2000000000,"run_delay_ns":{waited},"elapsed_ns":4000000000}}"#);
            format!(
                r#"{{"result":{{"evidence":{{"runs":[{{"kind":"{kind}","sender_cpu":{cpu},"receiver_cpu":null,"asked_bps":100,"sent_bps":{sent}}}]}}}}}}"#
            )
        };
        let why = waited(&said("tcp", 500_000_000, 100)).unwrap();
        assert_eq!(why, "a thread of the test waited 500ms of 4.00s for a CPU");
        assert_eq!(waited(&said("tcp", 300_000_000, 100)), None);
        let rested = said("tcp", 500_000_000, 100).replace("cpu_time_ns\":2", "cpu_time_ns\":1");
        assert_eq!(waited(&rested), None);
        // A pacer that waits and keeps its rate does no harm.
        assert_eq!(waited(&said("udp", 500_000_000, 95)), None);
        assert!(waited(&said("udp", 500_000_000, 80)).is_some());
        // The path took no more: nobody waited for a CPU.
        assert_eq!(waited(&said("udp", 0, 20)), None);
        assert_eq!(waited("{"), None);
    }
}
