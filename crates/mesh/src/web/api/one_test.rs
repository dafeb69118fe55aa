//! Single tests as they are answered: all that is kept of each.

use longhaul_units::utc;
use serde::Serialize;
use utoipa::ToSchema;

use super::answers::Span;
use crate::store;

/// Tests of a pair.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tests {
    /// When.
    pub(crate) span: Span,
    /// The latest first, 1000 at most.
    pub(crate) tests: Vec<OneTest>,
}

/// A test and between whom it was.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TestOfPair {
    /// The site that sent; of round trips the one that sent the probes.
    pub(crate) sender: String,
    /// The site that received, or answered.
    pub(crate) receiver: String,
    /// What is kept of it.
    pub(crate) result: OneTest,
}

/// One test.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct OneTest {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// The test plan.
    pub(crate) test: String,
    /// `udp`, `rtt`, `tcp` or `diagnose`.
    pub(crate) kind: &'static str,
    /// When it began.
    pub(crate) at: String,
    /// Packets sent, of round trips probes; 0 of other kinds.
    pub(crate) sent_packets: i64,
    /// Packets lost.
    pub(crate) lost_packets: i64,
    /// Of them at the sending host; null where the hosts could not see their drops.
    pub(crate) lost_at_sender_packets: Option<i64>,
    /// Of them at the receiving host.
    pub(crate) lost_at_receiver_packets: Option<i64>,
    /// Payload bits a second that were received; 0 of round trips.
    pub(crate) received_rate_bps: i64,
    /// Of kind `rtt` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round_trips: Option<RoundTrips>,
    /// Of kind `tcp` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tcp: Option<Tcp>,
    /// Of kind `diagnose` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diagnosis: Option<Diagnosis>,
    /// Files beside it, `losses` or `samples`: `/api/v1/tests/{id}/files/{kind}` has them. Lists of tests do not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<&'static str>,
}

/// Round trips of probes over a time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RoundTrips {
    /// From the first probe to the last, nanoseconds.
    pub(crate) duration_ns: i64,
    /// The least, nanoseconds; null: no probe was answered. The same holds for the quantiles.
    pub(crate) min_ns: Option<i64>,
    /// The median.
    pub(crate) p50_ns: Option<i64>,
    /// 90 % are at most this.
    pub(crate) p90_ns: Option<i64>,
    /// 99 % are at most this.
    pub(crate) p99_ns: Option<i64>,
    /// The greatest.
    pub(crate) max_ns: Option<i64>,
    /// Runs of lost probes that lasted a second or more.
    pub(crate) outages: i64,
    /// The longest of them, nanoseconds.
    pub(crate) longest_outage_ns: i64,
    /// Time in which probes told nothing of the path, nanoseconds. It is no loss.
    pub(crate) gaps_ns: i64,
}

/// A TCP flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tcp {
    /// By the receiver's clock, nanoseconds.
    pub(crate) duration_ns: i64,
    /// Payload bytes that the receiver read.
    pub(crate) bytes: i64,
    /// Payload bits a second that the receiver read.
    pub(crate) goodput_bps: i64,
    /// The rate that the sender was paced to: payload bits a second.
    pub(crate) paced_bps: i64,
    /// Retransmitted packets.
    pub(crate) retransmits: i64,
    /// Retransmitted payload bytes; null: the sender's kernel does not count them.
    pub(crate) retransmitted_bytes: Option<i64>,
    /// Least round-trip time, nanoseconds; null: the sender's kernel has none.
    pub(crate) min_rtt_ns: Option<i64>,
    /// The sender's congestion control.
    pub(crate) congestion_control: String,
    /// What limited the flow for the greatest share of its time: `congestion_window`, `receive_window`, `send_buffer` or `application`.
    pub(crate) limited_by: String,
    /// That share, from 0 to 1.
    pub(crate) limited_share: f64,
}

/// What `longhaul diagnose` found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Diagnosis {
    /// The rate that was expected of the path, bits a second on the wire (L1).
    pub(crate) target_bps: Option<i64>,
    /// What TCP carried, payload bits a second.
    pub(crate) goodput_bps: Option<i64>,
    /// What limits it, the lowest limit first, 16 at most.
    pub(crate) causes: Vec<Cause>,
    /// Why there is no answer; null: there is one.
    pub(crate) failed: Option<String>,
}

/// A limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cause {
    /// Its code, such as `loss`: `longhaul docs diagnosis` explains each.
    pub(crate) code: String,
    /// Where: a location, or the name of a host's role; empty if it is not known.
    pub(crate) place: String,
    /// The rate that it allows at most, payload bits a second; null: no test says.
    pub(crate) bound_bps: Option<i64>,
    /// What to do, the first advice.
    pub(crate) remedy: String,
}

impl From<store::Tested> for OneTest {
    fn from(test: store::Tested) -> Self {
        Self {
            id: test.id,
            test: test.test,
            kind: "udp",
            at: utc(test.at_ns),
            sent_packets: test.sent,
            lost_packets: test.lost,
            lost_at_sender_packets: test.at_sender,
            lost_at_receiver_packets: test.at_receiver,
            received_rate_bps: test.received_rate_bps,
            ..Self::default()
        }
    }
}

impl From<store::TestResult> for TestOfPair {
    fn from(result: store::TestResult) -> Self {
        let store::TestResult {
            id,
            test,
            sender,
            receiver,
            at_ns,
            sent,
            lost,
            at_sender,
            at_receiver,
            received_rate_bps,
        } = result;
        let tested = store::Tested { id, test, at_ns, sent, lost, at_sender, at_receiver, received_rate_bps };
        Self { sender, receiver, result: tested.into() }
    }
}

impl From<store::Measurement> for TestOfPair {
    fn from(measurement: store::Measurement) -> Self {
        let store::Measurement { id, test, sender, receiver, at_ns, measured } = measurement;
        let mut result = OneTest { id, test, at: utc(at_ns), ..OneTest::default() };
        match measured {
            store::Measured::Rtt(trips) => {
                result.kind = "rtt";
                (result.sent_packets, result.lost_packets) = (trips.sent, trips.lost);
                result.round_trips = Some(trips.into());
            }
            store::Measured::Tcp(flow) => {
                result.kind = "tcp";
                result.received_rate_bps = flow.goodput_bps;
                result.tcp = Some(flow.into());
            }
            store::Measured::Diagnose(diagnosis) => {
                result.kind = "diagnose";
                result.received_rate_bps = diagnosis.goodput_bps.unwrap_or(0);
                result.diagnosis = Some(diagnosis.into());
            }
            // None is in the store.
            store::Measured::Unknown => {}
        }
        Self { sender, receiver, result }
    }
}

impl From<store::RoundTrips> for RoundTrips {
    fn from(trips: store::RoundTrips) -> Self {
        let quantile = |of: fn(&store::Quantiles) -> i64| trips.quantiles.as_ref().map(of);
        Self {
            duration_ns: trips.duration_ns,
            min_ns: quantile(|of| of.min_ns),
            p50_ns: quantile(|of| of.p50_ns),
            p90_ns: quantile(|of| of.p90_ns),
            p99_ns: quantile(|of| of.p99_ns),
            max_ns: quantile(|of| of.max_ns),
            outages: trips.outages,
            longest_outage_ns: trips.longest_outage_ns,
            gaps_ns: trips.gaps_ns,
        }
    }
}

impl From<store::TcpFlow> for Tcp {
    fn from(flow: store::TcpFlow) -> Self {
        Self {
            duration_ns: flow.duration_ns,
            bytes: flow.bytes,
            goodput_bps: flow.goodput_bps,
            paced_bps: flow.paced_bps,
            retransmits: flow.retransmits,
            retransmitted_bytes: flow.retransmitted_bytes,
            min_rtt_ns: flow.min_rtt_ns,
            congestion_control: flow.congestion_control,
            limited_by: flow.limited_by,
            limited_share: flow.limited_share,
        }
    }
}

impl From<store::Diagnosis> for Diagnosis {
    fn from(diagnosis: store::Diagnosis) -> Self {
        let cause = |cause: store::Cause| Cause {
            code: cause.code,
            place: cause.place,
            bound_bps: cause.bound_bps,
            remedy: cause.remedy,
        };
        Self {
            target_bps: diagnosis.target_bps,
            goodput_bps: diagnosis.goodput_bps,
            causes: diagnosis.causes.into_iter().map(cause).collect(),
            failed: diagnosis.failed,
        }
    }
}
