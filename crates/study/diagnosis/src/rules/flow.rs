//! What limited each TCP run, by its own clocks: windows, programs, CPUs; what is left is the congestion control's ([`loss`]).
//!
//! Each further run goes without the limit of the one before (larger buffers, a program that is never slow, another control), so it shows the
//! next one.

use longhaul_units::{Bytes, Nanos};

use super::{FILLS, Known, about, hosts, loss, masked, measured, observed, path};
use crate::diagnosis::{Bound, Code, Interval, Line, Remedy, Role};
use crate::evidence::{CpuFacts, Purpose, TcpFacts, Vantage};

/// A limit is the run's if it held for most of the time.
pub(super) const MOST_OF_THE_TIME: f64 = 0.5;
/// A thread is a limit of its own if it has a CPU for all but 5 % of the time; a core has nothing left for a burst then.
pub(super) const BUSY: f64 = 0.95;
/// Above this share of the time a thread that is ready waits for a CPU that others have.
const WAITING: f64 = 0.4;
/// Whether the kernel sizes receive buffers by what the path holds (ip-sysctl.rst).
const AUTOTUNING: &str = "net.ipv4.tcp_moderate_rcvbuf";

pub(super) fn bounds(known: &Known<'_>) -> Vec<Bound> {
    // What a flow does whose large packets are lost says nothing else.
    if path::black_hole(known).is_some() {
        return Vec::new();
    }
    let purposes = [Purpose::Default, Purpose::LargeBuffers, Purpose::OtherControl, Purpose::Observed];
    let mut bounds: Vec<Bound> = Vec::new();
    let mut add = |found: Vec<Bound>| {
        // A later run that does no better than the first shows the same limit.
        let new: Vec<Bound> =
            found.into_iter().filter(|bound| bounds.iter().all(|known| known.code != bound.code)).collect();
        bounds.extend(new);
    };
    // Another congestion control that carries no more tells nothing of what holds back the first.
    let carried = known.tcp(Purpose::Default).map_or(0, |run| run.steady_bps);
    let tells = |run: &&TcpFacts| run.purpose != Purpose::OtherControl || run.steady_bps > carried;
    for run in purposes.into_iter().filter_map(|purpose| known.tcp(purpose)).filter(tells) {
        add(limit(known, run).into_iter().collect());
    }
    add(loss::bad_member(known).into_iter().collect());
    add(masked::loss(known).into_iter().collect());
    add(buffers(known));
    bounds
}

/// Whether the run carries what the path can carry.
fn fills(known: &Known<'_>, run: &TcpFacts) -> bool {
    known.reachable_bps().is_some_and(|reachable| run.steady_bps as f64 >= FILLS * reachable as f64)
}

/// What limited the run; nothing if it fills the path.
fn limit(known: &Known<'_>, run: &TcpFacts) -> Option<Bound> {
    if fills(known, run) {
        return None;
    }
    let at_host = hosts::throttled(known, run).or_else(|| processor(run)).or_else(|| hosts::memory(known, run));
    if let Some(bound) = at_host.or_else(|| loss::without_sack(known, run)) {
        return Some(bound);
    }
    // The receiver's own clocks say whose the window was, also where loss held the flow for the rest of the time.
    if run.receiver_limited_by.is_some_and(|by| by.application >= MOST_OF_THE_TIME) {
        return Some(receive_window(known, run));
    }
    let by = run.limited_by;
    let shares = [by.receive_window, by.send_buffer, by.application, by.congestion_window];
    let most = shares.into_iter().fold(0.0, f64::max);
    if by.receive_window >= MOST_OF_THE_TIME || by.receive_window == most && most > 0.0 {
        return Some(receive_window(known, run));
    }
    if by.send_buffer >= MOST_OF_THE_TIME || by.send_buffer == most && most > 0.0 {
        return Some(send_buffer(known, run));
    }
    if by.application >= MOST_OF_THE_TIME || by.application == most && most > 0.0 {
        let share = by.application;
        if let Some(bound) = starved(run, Role::Sender, share) {
            return Some(bound);
        }
        return Some(Bound {
            code: Code::SenderApplication,
            place: None,
            host: Some(Role::Sender),
            bound_bps: measured(run),
            evidence: vec![Line::new(
                format!("the sending program wrote too little for {:.0} % of the time", share * 100.0),
                "ss -tni: the Send-Q is empty, and app_limited is shown",
            )],
            remedies: vec![Remedy::new(
                Some(Role::Sender),
                "find why the program writes slowly: disk, CPU, its own window",
                "strace -f -c -p PID; pidstat -dru -p PID 1",
            )],
        });
    }
    match run.observed.as_deref().copied() {
        Some(seen) => observed::limit(known, run, seen),
        None => loss::limit(known, run),
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// The part of its time that a thread ran, and the part that it waited for a CPU.
fn shares(cpu: CpuFacts) -> (f64, f64) {
    let share = |ns: u64| ns as f64 / cpu.elapsed_ns.max(1) as f64;
    (share(cpu.cpu_time_ns), share(cpu.run_delay_ns))
}

/// The thread of a test does nothing but send or receive. That of another program may be busy with something else: its CPU is the limit where
/// TCP waits for the program ([`starved`]).
fn processor(run: &TcpFacts) -> Option<Bound> {
    if run.observed.is_some() {
        return None;
    }
    let ends = [(Role::Sender, run.sender_cpu), (Role::Receiver, run.receiver_cpu)];
    ends.into_iter().find_map(|(role, cpu)| Some(of_cpu(run, role, cpu.filter(|cpu| wants_more(*cpu))?)))
}

/// Whether a thread that never stops, or one that waits and uses what it gets, wants more CPU than it has.
fn wants_more(cpu: CpuFacts) -> bool {
    let (used, delayed) = shares(cpu);
    used >= BUSY || delayed >= WAITING && used + delayed >= BUSY
}

/// A program that was too slow for `share` of the time, and waited for a CPU at least as long, or never rested: its CPU is to blame.
fn starved(run: &TcpFacts, role: Role, share: f64) -> Option<Bound> {
    let cpu = if role == Role::Sender { run.sender_cpu } else { run.receiver_cpu }?;
    let (used, delayed) = shares(cpu);
    (delayed >= share && delayed >= WAITING || used + delayed >= BUSY).then(|| of_cpu(run, role, cpu))
}

fn of_cpu(run: &TcpFacts, role: Role, cpu: CpuFacts) -> Bound {
    let (used, delayed) = shares(cpu);
    let waits = delayed >= WAITING;
    let text = format!(
        "the {}'s thread ran for {} of the time and waited for a CPU for {}",
        role.name(),
        percent(used),
        percent(delayed)
    );
    let remedy = if waits {
        "stop what competes for the CPU, or give the program a CPU of its own"
    } else {
        "use several flows, larger packets and offloads, or a faster core"
    };
    Bound {
        code: Code::Cpu,
        place: None,
        host: Some(role),
        bound_bps: measured(run),
        evidence: vec![Line::new(text, "cat /proc/PID/task/TID/schedstat: ns on a CPU, ns waiting; pidstat -u -w 1")],
        remedies: vec![Remedy::new(
            Some(role),
            remedy,
            "taskset -c CPU COMMAND; systemctl set-property --runtime SLICE CPUWeight=1000",
        )],
    }
}

fn receive_window(known: &Known<'_>, run: &TcpFacts) -> Bound {
    let mut evidence = vec![Line::new(
        format!("the receive window was full for {} of the time", percent(run.limited_by.receive_window)),
        "ss -tni at the sender: rwnd_limited",
    )];
    evidence.extend(in_flight(known, run));
    if run.observed.as_deref().is_some_and(|seen| seen.from != Vantage::Receiver) {
        evidence.push(Line::new(
            "a buffer of the receiver's settings, one that its program sets, and a program that reads too slowly look alike here",
            "longhaul diagnose --watch PID at the receiver, or ss -tmn there: rb, Recv-Q",
        ));
    }
    let reader = run.receiver_limited_by.is_some_and(|by| by.application > by.receive_window && by.application > 0.25);
    if reader {
        let share = run.receiver_limited_by.map_or(0.0, |by| by.application);
        if let Some(bound) = starved(run, Role::Receiver, share) {
            return bound;
        }
        evidence.push(Line::new(
            format!("unread data filled the window for {} of the time: the program reads too slowly", percent(share)),
            "ss -tn at the receiver: a large Recv-Q",
        ));
        return Bound {
            code: Code::ReceiverApplication,
            place: None,
            host: Some(Role::Receiver),
            bound_bps: measured(run),
            evidence,
            remedies: vec![Remedy::new(
                Some(Role::Receiver),
                "find why the program reads slowly: disk, CPU, one thread for all",
                "strace -f -c -p PID; pidstat -dru -p PID 1",
            )],
        };
    }
    if run.handshake.window_scaling == Some(false) {
        return unscaled(known, run, evidence);
    }
    if let Some(bytes) = own_buffer(known, run, Role::Receiver) {
        return own_window(run, Role::Receiver, bytes, evidence);
    }
    let key = "net.ipv4.tcp_rmem";
    if let Some(bytes) = known.evidence.receiver.number(key) {
        evidence.push(Line::new(format!("the receiver's {key} allows {}", Bytes(bytes)), format!("sysctl {key}")));
    }
    let remedy = if known.evidence.receiver.number(AUTOTUNING) == Some(0) {
        let stays = known
            .evidence
            .receiver
            .sysctls
            .get(key)
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        let stays = stays.map_or_else(String::new, |bytes| format!(": its buffer stays at {}", Bytes(bytes)));
        evidence.push(Line::new(format!("the receiver has {AUTOTUNING}=0{stays}"), format!("sysctl {AUTOTUNING}")));
        Remedy::new(
            Some(Role::Receiver),
            "let the kernel tune receive buffers by what the path holds",
            format!("sysctl -w {AUTOTUNING}=1"),
        )
    } else {
        larger(known, Role::Receiver, "rmem").unwrap_or_else(|| {
            Remedy::new(
                Some(Role::Receiver),
                "find what else bounds the window, as the buffers allow enough: `window` of a route, or the program's SO_RCVBUF",
                "ip route show to match SENDER; longhaul tune --role receiver --to SENDER --rate RATE --rtt RTT",
            )
        })
    };
    Bound {
        code: Code::ReceiveWindow,
        place: None,
        host: Some(Role::Receiver),
        bound_bps: measured(run),
        evidence,
        remedies: vec![remedy],
    }
}

/// Without window scaling 64 KB are in flight: switched off at a host, or taken out on the way.
fn unscaled(known: &Known<'_>, run: &TcpFacts, mut evidence: Vec<Line>) -> Bound {
    let key = "net.ipv4.tcp_window_scaling";
    let hosts = [(Role::Sender, &known.evidence.sender), (Role::Receiver, &known.evidence.receiver)];
    let off = hosts.iter().find(|(_, host)| host.number(key) == Some(0)).map(|(role, _)| *role);
    let (code, text, remedy) = match off {
        Some(role) => (
            Code::ReceiveWindow,
            format!("the {} has {key}=0: at most 64 KiB are in flight", role.name()),
            Remedy::new(Some(role), "turn window scaling on (RFC 7323)", format!("sysctl -w {key}=1")),
        ),
        None if hosts.iter().all(|(_, host)| host.number(key).is_some_and(|value| value > 0)) => (
            Code::MiddleboxOptions,
            format!(
                "both hosts scale windows (RFC 7323 §2), and the connection does not: {}",
                run.handshake.taken_out(|syn| syn.window_scaling)
            ),
            Remedy::new(
                None,
                "find the firewall or load balancer that rewrites TCP options: compare the SYNs at both hosts",
                "tcpdump -ni IF -v 'tcp[13] & 2 != 0'",
            ),
        ),
        None => (
            Code::ReceiveWindow,
            "windows are not scaled (RFC 7323 §2): at most 64 KiB are in flight. A host has it off whose settings were not seen, or something on \
             the path removed the option"
                .to_owned(),
            Remedy::new(None, "look at both hosts; if both have it on, compare the SYNs there", format!("sysctl {key}; tcpdump -ni IF -v 'tcp[13] & 2 != 0'")),
        ),
    };
    evidence.push(Line::new(text, format!("sysctl {key}; ss -tni shows wscale where it is in use")));
    Bound { code, place: None, host: off, bound_bps: measured(run), evidence, remedies: vec![remedy] }
}

/// The size of a buffer that the program set itself: as asked in a test; or a buffer that was full, and that the kernel did not let grow to
/// half of what its settings allow.
fn own_buffer(known: &Known<'_>, run: &TcpFacts, role: Role) -> Option<u64> {
    let Some(seen) = run.observed.as_deref() else {
        return run.window_bytes.filter(|_| run.purpose == Purpose::Default);
    };
    let (from, host, key) = match role {
        Role::Sender => (Vantage::Sender, &known.evidence.sender, "net.ipv4.tcp_wmem"),
        Role::Receiver => (Vantage::Receiver, &known.evidence.receiver, "net.ipv4.tcp_rmem"),
    };
    let allowed = host.number(key)?;
    seen.buffer_bytes.filter(|bytes| seen.from == from && bytes.saturating_mul(2) < allowed)
}

/// The program sets its buffers: the kernel no longer tunes them (tcp(7), `SO_RCVBUF`).
fn own_window(run: &TcpFacts, role: Role, bytes: u64, mut evidence: Vec<Line>) -> Bound {
    evidence.push(Line::new(
        format!("the program sets its socket buffers to {}", Bytes(bytes).rounded()),
        "strace -f -e setsockopt COMMAND",
    ));
    Bound {
        code: Code::ApplicationWindow,
        place: None,
        host: Some(role),
        bound_bps: measured(run),
        evidence,
        remedies: vec![Remedy::new(
            Some(role),
            "let the program leave its buffers to the kernel, or raise its own window",
            "",
        )],
    }
}

fn send_buffer(known: &Known<'_>, run: &TcpFacts) -> Bound {
    let mut evidence = vec![Line::new(
        format!("the send buffer was full for {} of the time", percent(run.limited_by.send_buffer)),
        "ss -tni at the sender: sndbuf_limited",
    )];
    evidence.extend(in_flight(known, run));
    if let Some(bytes) = own_buffer(known, run, Role::Sender) {
        return own_window(run, Role::Sender, bytes, evidence);
    }
    let key = "net.ipv4.tcp_wmem";
    if let Some(bytes) = known.evidence.sender.number(key) {
        evidence.push(Line::new(format!("the sender's {key} allows {}", Bytes(bytes)), format!("sysctl {key}")));
    }
    Bound {
        code: Code::SendBuffer,
        place: None,
        host: Some(Role::Sender),
        bound_bps: measured(run),
        evidence,
        remedies: vec![larger(known, Role::Sender, "wmem").unwrap_or_else(|| {
            Remedy::new(
                Some(Role::Sender),
                "find what else bounds the buffer (tb of ss), as the kernel allows enough: the program's SO_SNDBUF, or memory for TCP",
                "ss -tmn; sysctl net.ipv4.tcp_mem; cat /proc/net/sockstat",
            )
        })],
    }
}

fn in_flight(known: &Known<'_>, run: &TcpFacts) -> Option<Line> {
    let (bytes, rtt) = (run.max_in_flight_bytes?, known.base_rtt_ns?);
    let rate = about(super::share(bytes.saturating_mul(8), 1_000_000_000, rtt));
    let text = format!(
        "at most {} were in flight: over a round trip of {} that is {rate}",
        Bytes(bytes),
        Nanos(rtt).rounded()
    );
    Some(Line::new(text, ""))
}

/// Twice what the path holds: the kernel counts its own overhead (`tcp_adv_win_scale`, ip-sysctl.rst), and a loss needs a
/// second window while it is repaired (RFC 6349 §3.3.1 asks for the bandwidth-delay product). `None` where the kernel may use as much.
fn larger(known: &Known<'_>, role: Role, which: &str) -> Option<Remedy> {
    let host = if role == Role::Sender { &known.evidence.sender } else { &known.evidence.receiver };
    let key = format!("net.ipv4.tcp_{which}");
    let allowed = host.number(&key);
    let target = known.target.zip(known.base_rtt_ns);
    let target = target.map(|(target, rtt)| super::share(target.rate_bps, rtt, 4_000_000_000));
    let (needed, why) = match target.filter(|needed| *needed > 0) {
        Some(needed) => (needed, "twice rate × round trip"),
        None => (allowed?.saturating_mul(2), "twice what it may use now"),
    };
    let needed = needed.min(i32::MAX as u64);
    if allowed.is_some_and(|allowed| allowed >= needed) {
        return None;
    }
    let before = host.sysctls.get(&key).and_then(|text| text.rsplit_once(char::is_whitespace));
    let [least, first] = before.map_or(["4096", "131072"], |(before, _)| {
        let (least, first) = before.split_once(char::is_whitespace).unwrap_or(("4096", before));
        [least, first.trim()]
    });
    let core = if which == "rmem" { "net.core.rmem_max" } else { "net.core.wmem_max" };
    Some(Remedy::new(
        Some(role),
        format!(
            "let the kernel use {} for each connection: {why} ({core}: for programs that set their buffers)",
            Bytes(needed).rounded()
        ),
        format!("sysctl -w {key}=\"{least} {first} {needed}\"; sysctl -w {core}={needed}"),
    ))
}

/// What the hosts' buffers allow by formula: an upper end of what was not measured.
///
/// The kernel gives about half of a receive buffer to the window (`tcp_adv_win_scale=1`), and a send buffer holds the data in flight with
/// its overhead: measured is 0.6 to 0.83 of the formula.
fn buffers(known: &Known<'_>) -> Vec<Bound> {
    let Some(rtt) = known.base_rtt_ns else { return Vec::new() };
    let rate = |bytes: u64, part: f64| (bytes as f64 * 8.0 * part / (rtt as f64 / 1e9)) as u64;
    let mut bounds = Vec::new();
    let limits = [
        (Code::ReceiveWindow, Role::Receiver, "rmem", (0.5, 1.0)),
        (Code::SendBuffer, Role::Sender, "wmem", (0.6, 0.83)),
    ];
    for (code, role, which, (least, most)) in limits {
        let host = if role == Role::Sender { &known.evidence.sender } else { &known.evidence.receiver };
        let key = format!("net.ipv4.tcp_{which}");
        let Some(bytes) = host.number(&key) else { continue };
        // A flow with the kernel's own buffers that carried more shows that the formula is too low here.
        let own = |run: &&TcpFacts| run.window_bytes.is_none() && run.purpose != Purpose::SeveralFlows;
        let carried = known.tcp_runs().filter(own).map(|run| run.steady_bps).max().unwrap_or(0);
        let (least, most) = (rate(bytes, least).max(carried), rate(bytes, most));
        if most <= carried {
            continue;
        }
        bounds.push(Bound {
            code,
            place: None,
            host: Some(role),
            bound_bps: Interval::derived(least, most),
            evidence: vec![Line::new(
                format!("{key} allows {} over a round trip of {}", Bytes(bytes), Nanos(rtt).rounded()),
                format!("sysctl {key}"),
            )],
            remedies: larger(known, role, which).into_iter().collect(),
        });
    }
    bounds
}
