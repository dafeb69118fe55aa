//! The data part of a UDP test: a socket and a thread a stream, and what is counted around them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

use longhaul_bpf::drops::Flow;
use longhaul_host::HostSnapshot;
use longhaul_kernel::clock::{RealtimeOffset, monotonic, realtime_offset};
use longhaul_kernel::udp::{ReceiverOptions, SenderOptions, TimestampMode, UdpOpenError, UdpReceiver, UdpSender};
use longhaul_result::{Caveat, Location, LocationMethod};
use longhaul_session::{DataPlan, EndReport, Progress, SessionError};
use longhaul_terms::{Collect, StreamSent};
use longhaul_udp::account::{MAX_SEQUENCES, SequenceTracker, SpacingRecorder};
use longhaul_udp::locate::{Evidence, Total, TotalScope};
use longhaul_udp::{ReceiverReport, SenderReport, Timestamps, UdpEndReport, UdpParameters};
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;

use crate::binding::Bound;
use crate::counters::{Before, Changed};
use crate::cpu_use::CpuWatch;
use crate::data::{Place, buffer, not_granted, pin};
use crate::driver::Event;
use crate::drops::{Seen, Watch};
use crate::receiving::{Account, Stamping, receive_stream, unread};
use crate::sending::{StreamOut, send_stream};

/// A step of the realtime clock by less is none that anybody makes: chrony and ntpd slew up to 100 ms and more.
const LEAST_STEP: Nanos = Nanos::from_millis(1);

/// Packets in a super-packet: UDP_MAX_SEGMENTS of `<linux/udp.h>`.
const UNIT_PACKETS_MOST: u64 = 128;

/// The open data part of a test. Dropping it ends its threads.
pub(crate) struct UdpData {
    plan: DataPlan,
    parameters: UdpParameters,
    streams: Vec<Stream>,
    before: Before,
    bound: Bound,
    /// At an end that receives.
    cpus: Option<CpuWatch>,
    /// How the kernel's or the NIC's stamps are read.
    stamping: Stamping,
    /// What watches for drop events: from the start, and at a server that sends from when it knows to whom.
    watches: Vec<Watch>,
    /// Whether this is the server.
    server: bool,
    stop_receiving: Arc<AtomicBool>,
    stop_sending: Arc<AtomicBool>,
    /// What the streams sent, as far as they are done.
    sent: Vec<Option<StreamOut>>,
    /// What the other end says that it sent.
    peer_sent: Vec<StreamSent>,
    realtime: RealtimeOffset,
    caveats: Vec<Caveat>,
    events: Sender<Event>,
}

struct Stream {
    receiver: Arc<UdpReceiver>,
    /// At the client, which knows its peer from the start.
    sender: Option<Arc<UdpSender>>,
    account: Account,
    threads: Vec<JoinHandle<()>>,
}

impl UdpData {
    /// Opens the sockets of `plan` and begins to receive. The client gives the server's address, the server its own.
    ///
    /// # Errors
    /// Where a socket is not to be had, or what else the plan asks for.
    pub(crate) fn open(
        plan: DataPlan,
        parameters: UdpParameters,
        at: Place,
        events: &Sender<Event>,
    ) -> Result<Self, SessionError> {
        let mut data = Self::open_sockets(plan, parameters, at, events)
            .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
        let (own, peer) = match (at, data.streams.first()) {
            (Place::Server { own, peer }, _) => (own, peer),
            (Place::Client(server), Some(stream)) => (stream.receiver.local_address().ip(), server),
            (Place::Client(server), None) => (server, server),
        };
        data.bound = Bound::new(&data.plan, &data.parameters, own, peer)?;
        data.watch_from_the_start()?;
        data.start_receiving();
        Ok(data)
    }

    fn open_sockets(
        plan: DataPlan,
        asked: UdpParameters,
        at: Place,
        events: &Sender<Event>,
    ) -> Result<Self, UdpOpenError> {
        let before = Before::take();
        let parameters = &asked;
        let buffer = parameters.sockbuf_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let timestamps = match parameters.timestamps {
            Timestamps::App => TimestampMode::App,
            Timestamps::Kernel => TimestampMode::Kernel,
            Timestamps::Nic => TimestampMode::Nic,
        };
        let receiving =
            ReceiverOptions { receive_buffer_bytes: buffer, gro: plan.receives && !parameters.wire, timestamps };
        let mut data = Self {
            streams: Vec::new(),
            before,
            bound: Bound::default(),
            cpus: None,
            stamping: Stamping::new(parameters.timestamps),
            watches: Vec::new(),
            server: matches!(at, Place::Server { .. }),
            stop_receiving: Arc::default(),
            stop_sending: Arc::default(),
            sent: (0..parameters.streams).map(|_| None).collect(),
            peer_sent: Vec::new(),
            realtime: realtime_offset(),
            caveats: Vec::new(),
            events: events.clone(),
            plan: plan.clone(),
            parameters: asked.clone(),
        };
        for stream in 0..parameters.streams {
            let (receiver, sender) = match at {
                Place::Server { own, .. } => (UdpReceiver::bind(SocketAddr::new(own, 0), &receiving)?, None),
                Place::Client(server) => {
                    let port = plan.server_ports.get(usize::from(stream)).copied().unwrap_or_default();
                    let options = SenderOptions { send_buffer_bytes: buffer, ..SenderOptions::default() };
                    let sender = UdpSender::connect(None, SocketAddr::new(server, port), &options)?;
                    (sender.receiver(&receiving)?, Some(Arc::new(sender)))
                }
            };
            if plan.receives {
                data.caveats.extend(not_granted("receive", "net.core.rmem_max", receiver.receive_buffer()));
            }
            if let Some(sender) = sender.as_ref().filter(|_| plan.sends) {
                data.caveats.extend(not_granted("send", "net.core.wmem_max", sender.send_buffer()));
            }
            let stamped_each = parameters.wire;
            let limit = parameters.packets_of_stream(stream).unwrap_or(MAX_SEQUENCES);
            data.streams.push(Stream {
                receiver: Arc::new(receiver),
                sender,
                account: Account::new(SequenceTracker::new(limit, stamped_each)),
                threads: Vec::new(),
            });
        }
        Ok(data)
    }

    /// Watches for drops of what this end receives, and of what a client sends.
    ///
    /// # Errors
    /// Where the plan says `bpf` and there are none to be had.
    fn watch_from_the_start(&mut self) -> Result<(), SessionError> {
        let mut flows = Vec::new();
        for (number, stream) in (0..).zip(&self.streams) {
            let flow = |port, backward| Flow { port, cookie: self.plan.cookie.of(backward, number).0 };
            if self.plan.receives {
                flows.push(flow(stream.receiver.local_address().port(), !self.server));
            }
            if self.plan.sends && !self.server {
                flows.extend(self.plan.server_ports.get(usize::from(number)).map(|port| flow(*port, false)));
            }
        }
        if flows.is_empty() && self.parameters.collect == Collect::Bpf {
            // To whom a server will send it does not know yet, but now is the time to say that there are no events.
            flows.push(Flow { port: 0, cookie: self.plan.cookie.of(true, 0).0 });
        }
        self.watch(&flows)
    }

    fn watch(&mut self, flows: &[Flow]) -> Result<(), SessionError> {
        let collect = self.parameters.collect;
        if flows.is_empty() || matches!(collect, Collect::Counters | Collect::Off) {
            return Ok(());
        }
        match Watch::start(flows, self.parameters.streams, self.server, self.unit_packets_most()) {
            Ok(watch) => self.watches.push(watch),
            Err(error) if collect == Collect::Bpf => {
                let message = format!("--collect bpf: {error}");
                return Err(SessionError::new(
                    "no_drop_events",
                    message,
                    "use --collect auto, or run both ends as root",
                ));
            }
            Err(error) => self.caveats.push(Caveat::new(
                "no_drop_events",
                format!("losses are placed by counters: {error}"),
                "run as root on Linux 5.17 or newer",
            )),
        }
        Ok(())
    }

    /// Packets that may travel as one: none with `--wire`, else what either end's GSO or GRO may put together.
    fn unit_packets_most(&self) -> u64 {
        if self.parameters.wire { 1 } else { UNIT_PACKETS_MOST }
    }

    fn start_receiving(&mut self) {
        if self.plan.receives {
            let accounts: Vec<Account> = self.streams.iter().map(|stream| stream.account.clone()).collect();
            let received = |account: &Account| account.with(|tracker| tracker.counts().received_packets);
            self.cpus = Some(CpuWatch::start(move || accounts.iter().map(received).sum()));
        }
        let (session, backward) = (self.plan.cookie, !self.server);
        for (number, stream) in (0..).zip(&mut self.streams) {
            let cookie = session.of(backward, number);
            let (socket, account) = (Arc::clone(&stream.receiver), stream.account.clone());
            let (stop, events) = (Arc::clone(&self.stop_receiving), self.events.clone());
            let (cpus, mut stamping) = (cpus(&self.bound.receiver_cpus), self.stamping.clone());
            stream.threads.extend(
                Builder::new()
                    .name(format!("receive {number}"))
                    .spawn(move || {
                        pin(&cpus);
                        receive_stream(&socket, cookie, &account, &mut stamping, &stop, &events);
                    })
                    .ok(),
            );
        }
    }

    /// The cookie of what arrives on a stream: at the server it was sent forward.
    fn arriving(&self, stream: u8) -> Cookie {
        self.plan.cookie.of(!self.server, stream)
    }

    /// The ports of the own sockets.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.streams.iter().map(|stream| stream.receiver.local_address().port()).collect()
    }

    /// What there is to say about the conditions at this end so far, once.
    pub(crate) fn take_caveats(&mut self) -> Vec<Caveat> {
        let caveats = std::mem::take(&mut self.caveats);
        caveats.into_iter().map(|caveat| self.of_this_end(caveat)).collect()
    }

    /// A caveat that says which end it is about.
    fn of_this_end(&self, caveat: Caveat) -> Caveat {
        let end = if self.server { "server" } else { "client" };
        Caveat { message: format!("{end}: {}", caveat.message), ..caveat }
    }

    /// Sends a datagram of the proof. One that is lost is sent again.
    pub(crate) fn send_probe(&self, stream: u8, to: Option<SocketAddr>, bytes: &[u8]) {
        let Some(stream) = self.streams.get(usize::from(stream)) else { return };
        let _ = match (to, &stream.sender) {
            (Some(to), _) => stream.receiver.send_to(bytes, to),
            (None, Some(sender)) => sender.send(bytes, false),
            (None, None) => Ok(()),
        };
    }

    /// Starts a thread a stream that sends, at the server to the addresses `to`.
    pub(crate) fn start_sending(&mut self, to: &[SocketAddr]) {
        let server = self.server;
        if server {
            let flow =
                |(number, to): (u8, &SocketAddr)| Flow { port: to.port(), cookie: self.plan.cookie.of(true, number).0 };
            let flows: Vec<_> = (0..).zip(to).map(flow).collect();
            // What fails now is a doubt, as the test has begun.
            if let Err(error) = self.watch(&flows) {
                self.caveats.push(Caveat::new(&error.code, error.message, error.remedy));
            }
        }
        for (number, stream) in (0_u8..).zip(&mut self.streams) {
            let socket = match (&stream.sender, to.get(usize::from(number))) {
                (Some(sender), _) => Ok(Arc::clone(sender)),
                (None, Some(to)) => connected_sender(&stream.receiver, *to, self.parameters.sockbuf_bytes),
                (None, None) => continue,
            };
            if let Ok(socket) = &socket {
                stream.sender.get_or_insert_with(|| Arc::clone(socket));
            }
            let cookie = self.plan.cookie.of(server, number);
            let (parameters, events) = (self.parameters.clone(), self.events.clone());
            let stop = Arc::clone(&self.stop_sending);
            let spawned = Builder::new().name(format!("send {number}")).spawn(move || {
                let out = match socket {
                    Ok(socket) => {
                        pin(&cpus(&parameters.affinity.sender_cpus));
                        send_stream(&socket, &parameters, cookie, &stop)
                    }
                    Err(error) => StreamOut { failure: Some(error.to_string()), ..StreamOut::default() },
                };
                // The driver may have given up.
                let _ = events.send(Event::Sent(number, Box::new(out)));
            });
            match spawned {
                Ok(thread) => stream.threads.push(thread),
                Err(error) => {
                    let out = StreamOut { failure: Some(error.to_string()), ..StreamOut::default() };
                    let _ = self.events.send(Event::Sent(number, Box::new(out)));
                }
            }
        }
    }

    /// Has the senders end.
    pub(crate) fn stop_sending(&self) {
        self.stop_sending.store(true, Ordering::Relaxed);
    }

    /// A stream is sent. Returns all streams' counts when it was the last.
    pub(crate) fn sent(&mut self, stream: u8, out: StreamOut) -> Option<Vec<StreamSent>> {
        *self.sent.get_mut(usize::from(stream))? = Some(out);
        self.sent.iter().map(|out| Some(out.as_ref()?.sent)).collect()
    }

    /// The other end has sent so much.
    pub(crate) fn peer_finished(&mut self, streams: Vec<StreamSent>) {
        self.peer_sent = streams;
    }

    /// Whether every packet that the other end sent is there; `None` while that is not known.
    pub(crate) fn is_drained(&self) -> Option<bool> {
        if self.peer_sent.is_empty() {
            return None;
        }
        let mut streams = self.streams.iter().zip(&self.peer_sent);
        Some(streams.all(|(stream, sent)| {
            stream.account.with(|tracker| tracker.counts().received_packets) >= sent.sent_packets
        }))
    }

    /// When the last packet arrived.
    pub(crate) fn last_arrival(&self) -> Nanos {
        self.streams
            .iter()
            .map(|stream| stream.account.with(|tracker| tracker.last_arrival()))
            .max()
            .unwrap_or_default()
    }

    /// What was received so far.
    pub(crate) fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        let first =
            self.streams.iter().filter_map(|stream| stream.account.with(|tracker| tracker.first_arrival())).min();
        if let Some(first) = first {
            progress.elapsed_ns = monotonic().saturating_sub(first).0;
        }
        for stream in &self.streams {
            let counts = stream.account.with(|tracker| tracker.counts());
            progress.received_packets += counts.received_packets;
            progress.missing_packets += counts.missing_packets;
            progress.duplicate_packets += counts.duplicate_packets;
            progress.reordered_packets += counts.reordering.reordered_packets;
        }
        progress.payload_bytes = progress.received_packets * u64::from(self.parameters.payload_bytes);
        progress
    }

    /// Ends the test at this end and says what it knows.
    pub(crate) fn report(mut self) -> EndReport {
        self.stop_receiving.store(true, Ordering::Relaxed);
        self.stop_sending.store(true, Ordering::Relaxed);
        for thread in self.streams.iter_mut().flat_map(|stream| stream.threads.drain(..)) {
            // A panic was printed when it happened; the account up to there stands.
            let _ = thread.join();
        }
        let mut caveats = std::mem::take(&mut self.caveats);
        caveats.extend(self.stamping.caveats());
        caveats.extend(stepped(self.parameters.timestamps, self.realtime, realtime_offset()));
        // Before the events end, as a packet whose checksum is wrong is dropped when it is read.
        let unread: Vec<Evidence> = match self.plan.receives && self.parameters.collect != Collect::Off {
            true => (0..)
                .zip(&self.streams)
                .map(|(number, stream)| unread(&stream.receiver, self.arriving(number)))
                .collect(),
            false => Vec::new(),
        };
        let seen = self.seen();
        let sender = self.plan.sends.then(|| self.sender_report(seen.as_ref(), &mut caveats));
        let receiver = self.plan.receives.then(|| self.receiver_report(seen.as_ref(), unread, &mut caveats));
        // A host that cannot be written as JSON is not looked at.
        let host = serde_json::to_value(HostSnapshot::take()).unwrap_or_default();
        let caveats = caveats.into_iter().map(|caveat| self.of_this_end(caveat)).collect();
        EndReport { udp: Some(UdpEndReport { sender, receiver }), tcp: None, host, caveats }
    }

    /// What all watches saw; `None` where there was none.
    fn seen(&mut self) -> Option<Seen> {
        let mut all: Option<Seen> = None;
        for seen in self.watches.drain(..).map(Watch::finish) {
            match &mut all {
                None => all = Some(seen),
                Some(all) => {
                    // The second watch is of what a server sends, the first of what it receives.
                    all.sent = seen.sent;
                    all.complete &= seen.complete;
                    all.doubtful_packets = all.doubtful_packets.saturating_add(seen.doubtful_packets);
                }
            }
        }
        all
    }

    fn sender_report(&mut self, seen: Option<&Seen>, caveats: &mut Vec<Caveat>) -> SenderReport {
        let changed = self.changes(false, caveats);
        let buffer = self.streams.iter().find_map(|stream| stream.sender.as_ref()).map(|s| buffer(s.send_buffer()));
        let mut spacing = SpacingRecorder::default();
        let mut refused = Vec::new();
        let mut report = SenderReport {
            totals: changed.totals,
            counters: changed.all,
            complete: self.parameters.collect != Collect::Off,
            buffer,
            method: LocationMethod::Counters,
            ..SenderReport::default()
        };
        for out in self.sent.drain(..).map(Option::unwrap_or_default) {
            spacing.merge(&out.spacing);
            report.streams.push(out.sent);
            report.evidence.push(out.evidence);
            refused.push(out.refused);
            if out.given_up > Nanos::ZERO {
                caveats.push(Caveat::new(
                    "pacing_not_achieved",
                    format!("the sender could not keep up and put its schedule off by {}", out.given_up),
                    "ask for a lower rate, larger packets, or allow batches (no --wire)",
                ));
            }
            if let Some(failure) = out.failure {
                caveats.push(Caveat::new("sender_stopped", format!("the sender stopped early: {failure}"), ""));
            }
        }
        report.spacing = spacing.spacing(self.parameters.spacing());
        match seen {
            Some(seen) => {
                // First the events, as they have the kernel's own reasons. What was refused without ever being a packet has
                // none; ENOBUFS has one, and does not say whether the queue or a far veth's ring was full.
                let answers = std::mem::replace(&mut report.evidence, seen.sent.evidence.clone());
                for ((events, answers), refused) in report.evidence.iter_mut().zip(&answers).zip(&refused) {
                    events.merge(answers, |at, why| (at != Location::SenderQdisc).then_some((at, why)));
                    events.merge(refused, |at, why| Some((at, why)));
                }
                report.method = LocationMethod::Bpf;
                report.complete = seen.complete;
                report.doubtful_packets = seen.doubtful_packets;
                report.totals = seen.sent.totals.clone();
            }
            None => {
                for (answers, refused) in report.evidence.iter_mut().zip(&refused) {
                    // What was refused without a reason was so for that of all others, where they have one.
                    let known = answers.clone();
                    answers.merge(refused, |at, why| Some(known.only_kind().unwrap_or((at, why))));
                }
                subtract_events(&mut report.totals, &report.evidence);
            }
        }
        report
    }

    /// Counters that changed, and a doubt where some could not be read.
    fn changes(&self, receives: bool, caveats: &mut Vec<Caveat>) -> Changed {
        if self.parameters.collect == Collect::Off {
            return Changed::default();
        }
        let changed = self.before.changes(receives);
        let known = caveats.iter().any(|caveat| caveat.code == "counters_unread");
        if let (false, [first, rest @ ..]) = (known, &changed.unread[..]) {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let message = format!("counters could not be read: {first}{more}");
            let remedy = "run as root; what they count may lie in `network` or `unexplained`";
            caveats.push(Caveat::new("counters_unread", message, remedy));
        }
        changed
    }

    fn receiver_report(
        &mut self,
        seen: Option<&Seen>,
        unread: Vec<Evidence>,
        caveats: &mut Vec<Caveat>,
    ) -> ReceiverReport {
        let mut changed = self.changes(true, caveats);
        let binding = self.bound.said();
        if let Some(used) = self.cpus.take().map(CpuWatch::finish) {
            used.add_to(&mut changed.all);
            caveats.extend(used.caveat(binding.as_ref()));
        }
        // With UDP_GRO a counter counts all packets of a super-packet once, so what is left over is not the network's.
        let counts_packets = self.parameters.wire || changed.totals.is_empty();
        let mut report = ReceiverReport {
            complete: counts_packets && changed.complete,
            totals: changed.totals,
            counters: changed.all,
            binding,
            buffer: self.streams.first().map(|stream| buffer(stream.receiver.receive_buffer())),
            method: LocationMethod::Counters,
            evidence: unread,
            ..ReceiverReport::default()
        };
        let mut socket_drops = 0;
        for (number, stream) in self.streams.drain(..).enumerate() {
            // The socket's own count covers this test alone, and its tail as well.
            if self.parameters.collect != Collect::Off {
                socket_drops += stream.receiver.memory().map_or(0, |memory| u64::from(memory.drops));
            }
            let sent = self.peer_sent.get(number).map(|sent| sent.sent_packets);
            let account = stream.account.into_tracker();
            let sent = sent.unwrap_or_else(|| account.next_expected());
            report.streams.push(account.finish(sent));
        }
        match seen {
            Some(seen) => {
                let unread = std::mem::replace(&mut report.evidence, seen.received.evidence.clone());
                for (events, unread) in report.evidence.iter_mut().zip(&unread) {
                    events.merge(unread, |at, why| Some((at, why)));
                }
                report.method = LocationMethod::Bpf;
                report.complete = seen.complete;
                report.doubtful_packets = seen.doubtful_packets;
                report.totals.retain(|total| without_event(total.location, &total.reason));
                subtract_events(&mut report.totals, &report.evidence);
                report.totals.extend(seen.received.totals.iter().cloned());
                // The socket counts by itself what it had no room for. A kernel may leave a program out where another one was
                // interrupted, and does not always count that.
                let full = socket_drops.min(changed.buffer_full_packets);
                let units = full.saturating_sub(seen.received.buffer_full_units);
                let more = units.saturating_mul(self.unit_packets_most() - 1);
                report.doubtful_packets = report.doubtful_packets.saturating_add(more);
                report.totals.extend((units > 0).then(|| Total {
                    location: Location::ReceiverSocketBuffer,
                    reason: "SO_MEMINFO drops, of which no event told".into(),
                    packets: units,
                    scope: TotalScope::Test,
                }));
                report.totals.extend(damaged(changed.damaged_packets, &report));
            }
            None => {
                // The socket's own count covers this test alone, its tail as well, and damaged packets that were read.
                let damaged = socket_drops.saturating_sub(changed.buffer_full_packets).min(changed.damaged_packets);
                let total = |location, packets| Total {
                    location,
                    reason: "SO_MEMINFO drops".into(),
                    packets,
                    scope: TotalScope::Test,
                };
                report.totals.push(total(Location::ReceiverSocketBuffer, socket_drops - damaged));
                report.totals.push(total(Location::ReceiverStack, damaged));
                report.totals.push(Total {
                    scope: TotalScope::Host,
                    reason: "InCsumErrors, InHdrErrors".into(),
                    ..total(Location::ReceiverStack, changed.damaged_packets - damaged)
                });
                report.complete &= self.parameters.wire || socket_drops == 0;
                report.totals.retain(|total| total.packets > 0);
            }
        }
        report
    }
}

/// What a counter of this name counts although no event tells of it: what never was a packet in the kernel's memory, in a NIC's
/// ring or at XDP in its driver.
fn without_event(location: Location, counter: &str) -> bool {
    location == Location::ReceiverRing || location == Location::ReceiverFilter && counter.contains(", driver ")
}

/// Leaves of each total what no event placed.
fn subtract_events(totals: &mut Vec<Total>, evidence: &[Evidence]) {
    let mut placed: BTreeMap<Location, u64> = BTreeMap::new();
    for total in totals.iter_mut() {
        let known = || evidence.iter().map(|evidence| evidence.packets_at(total.location)).sum();
        let placed = placed.entry(total.location).or_insert_with(known);
        let both = total.packets.min(*placed);
        (total.packets, *placed) = (total.packets - both, *placed - both);
    }
    totals.retain(|total| total.packets > 0);
}

/// Packets whose damage hit what tells them apart: the kernel counted them, and their events name another packet or none.
fn damaged(counted: u64, report: &ReceiverReport) -> Option<Total> {
    let checksum = |reason: &str| ["UDP_CSUM", "IP_CSUM", "IP_INHDR"].iter().any(|known| reason.starts_with(known));
    let streams = report.evidence.iter().zip(&report.streams);
    let placed: u64 = streams.map(|(evidence, stream)| evidence.packets_lost(&stream.losses, checksum)).sum();
    let packets = counted.saturating_sub(placed);
    (packets > 0).then(|| Total {
        location: Location::ReceiverStack,
        reason: "InCsumErrors, InHdrErrors: a header was damaged".into(),
        packets,
        scope: TotalScope::Host,
    })
}

/// A caveat where `CLOCK_REALTIME` was stepped.
fn stepped(timestamps: Timestamps, before: RealtimeOffset, after: RealtimeOffset) -> Option<Caveat> {
    let step_ns = after.offset_ns.saturating_sub(before.offset_ns);
    let apart = Nanos(step_ns.unsigned_abs());
    let doubt = LEAST_STEP + before.error + after.error;
    (apart > doubt).then(|| {
        let towards = if step_ns > 0 { "forward" } else { "back" };
        Caveat::new(
            "clock_stepped",
            format!("the realtime clock was set {towards} by {apart} during the test"),
            match timestamps {
                Timestamps::Kernel => "the kernel stamps packets by that clock: try again, or use --timestamps app",
                Timestamps::App | Timestamps::Nic => {
                    "the figures hold, as they come from a clock that does not step; keep NTP from stepping (chrony: makestep)"
                }
            },
        )
    })
}

impl Drop for UdpData {
    fn drop(&mut self) {
        self.stop_receiving.store(true, Ordering::Relaxed);
        self.stop_sending.store(true, Ordering::Relaxed);
    }
}

fn connected_sender(
    receiver: &UdpReceiver,
    to: SocketAddr,
    sockbuf_bytes: Option<u64>,
) -> Result<Arc<UdpSender>, UdpOpenError> {
    let options = SenderOptions {
        send_buffer_bytes: sockbuf_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        ..SenderOptions::default()
    };
    receiver.sender_to(to, &options).map(Arc::new)
}

fn cpus(wanted: &[u16]) -> Vec<usize> {
    wanted.iter().map(|cpu| usize::from(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_told_and_slewing_is_not() {
        let at = |offset_ns| RealtimeOffset { offset_ns, error: Nanos(1_000) };
        let said = |after| stepped(Timestamps::App, at(5_000_000_000), at(after)).map(|caveat| caveat.message);
        assert_eq!(said(5_000_900_000), None);
        assert!(said(7_000_000_000).unwrap().contains("forward by 2s"));
        assert!(said(4_500_000_000).unwrap().contains("back by 500ms"));
    }

    #[test]
    fn what_events_placed_is_no_longer_in_the_totals() {
        let mut evidence = Evidence::default();
        evidence.add(0, 30, Location::SenderQdisc, "ENOBUFS", 1);
        let total = |location, packets| Total { location, reason: "x".into(), packets, scope: TotalScope::Host };
        let mut totals =
            vec![total(Location::SenderQdisc, 20), total(Location::SenderQdisc, 15), total(Location::SenderDevice, 4)];
        subtract_events(&mut totals, &[evidence]);
        assert_eq!(totals, [total(Location::SenderQdisc, 5), total(Location::SenderDevice, 4)]);
    }
}
