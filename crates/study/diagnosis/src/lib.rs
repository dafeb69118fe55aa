//! What limits a flow, what each limit costs, and what to do.
//!
//! [`Evidence`] in, [`Diagnosis`] out: [`diagnose`]. Each possible limit is a *bound*, an interval in payload bits per second with its
//! evidence. Bounds below the target are causes, the lowest first; the next bound says what fixing one is worth. [`plan::next`] says
//! which test would tell more.
//!
//! Sources: DataTAG's method for end systems; NLR Rings, figure 6 (loss by place); RFC 6349 (TCP throughput testing); RFC 8337
//! (run length); Zhang et al., "On the characteristics and origins of Internet flow rates" (T-RAT), SIGCOMM 2002.

mod before;
mod bottleneck;
mod diagnosis;
mod events;
mod evidence;
mod long_path;
mod observed;
pub mod plan;
mod rules;
mod tests_seen;

pub use before::{Before, KEPT, Outcome};
pub use bottleneck::{Bottleneck, NoBottleneck, bottleneck};
pub use diagnosis::{
    Basis, Bound, Cause, Code, Diagnosis, Finding, Interval, Line, Remedy, Role, TargetBasis, Unknown, about,
};
pub use events::{HostEvents, ShapingQdisc};
pub use evidence::{
    ConntrackFacts, CpuFacts, CpuLimitFacts, Diagnosed, DiagnosedFlow, DiagnosedFlows, DiskFacts, Evidence, FlowFacts,
    Handshake, HostFacts, LinkFacts, MemoryLimitFacts, Observed, PacketShares, Purpose, Run, SynFacts, Target,
    TcpFacts, UdpFacts, Vantage,
};
pub use long_path::{Burst, LongPath, LongPathTest, NoLongPath, Verdict};
pub use observed::{captured_facts, flow_goes_forward, watched_facts, with_counters};
pub use rules::diagnose;
pub use tests_seen::{host_facts, tcp_facts, udp_facts};
