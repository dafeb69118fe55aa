//! The data part of a UDP test: what its streams do from the first datagram to the report.

mod opening;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

use longhaul_bpf::caveats::NO_DROP_EVENTS;
use longhaul_bpf::drops::Flow;
use longhaul_host::HostSnapshot;
use longhaul_kernel::address::zone_of;
use longhaul_kernel::clock::{RealtimeOffset, monotonic, realtime_offset};
use longhaul_kernel::udp::{SocketMemory, UdpReceiver, UdpSender};
use longhaul_result::Caveat;
use longhaul_session::EndReport;
use longhaul_session::{DataPlan, PacketsByLocation, Progress, SessionError};
use longhaul_terms::Collect;
use longhaul_terms::SocketBuffer;
use longhaul_terms::StreamSent;
use longhaul_udp::account::{Arrivals, PacketRows, ROWS_BYTES_MOST, StreamReceived};
use longhaul_udp::locate::Evidence;
use longhaul_udp::{UdpEndReport, UdpParameters};
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;

use self::opening::connected_sender;
use super::drops::{Seen, Watch, evidence_below};
use super::receiving::{Account, Receiving, Source, StreamIn, UNREAD_MOST, receive_stream, unread};
use super::report::{Received, receiver_report, sender_report};
use super::sending::{StreamOut, send_stream};
use super::softirq::Placement;
use super::stamping::{Stamping, stepped};
use crate::counters::{Before, Changed, Sent};
use crate::cpu_use::CpuWatch;
use crate::cpus::pin;
use crate::data::{Data, Opening, ThisEnd, buffer, no_drop_events};
use crate::event::{Event, ProofQueue};

/// Packets in a super-packet: UDP_MAX_SEGMENTS of `<linux/udp.h>`.
const UNIT_PACKETS_MOST: u64 = 128;
/// And their payload: GSO_LEGACY_MAX_SIZE of `include/linux/netdevice.h`, which is UDP's limit.
const UNIT_BYTES_MOST: u64 = 65_536;

/// The open data part of a UDP test: its streams, and what is watched and counted around them.
pub(crate) struct UdpData {
    plan: DataPlan,
    parameters: UdpParameters,
    streams: Vec<Stream>,
    before: Before,
    placement: Placement,
    /// At an end that receives.
    cpus: Option<CpuWatch>,
    /// How time stamps of the kernel or the NIC are read.
    stamping: Stamping,
    /// Watches for drop events: one from the start, and at a sending server one from when it knows its client's addresses.
    watches: Vec<Watch>,
    place: ThisEnd,
    stop_receiving: Arc<AtomicBool>,
    stop_sending: Arc<AtomicBool>,
    /// Of all streams.
    read_bytes: Arc<AtomicU64>,
    /// What the other end reports that it sent.
    peer_sent: Vec<StreamSent>,
    realtime: RealtimeOffset,
    caveats: Vec<Caveat>,
    events: Sender<Event>,
}

struct Stream {
    receiver: Arc<UdpReceiver>,
    /// At the client, which knows its peer from the start.
    sender: Option<Arc<UdpSender>>,
    source: Source,
    /// What the receiver had dropped when it began to take packets of the peer alone: before, anybody could fill it.
    dropped_before: AtomicU32,
    account: Account,
    receiving: Option<JoinHandle<StreamIn>>,
    /// What the receiving thread left, once it has ended.
    received: StreamIn,
    sending: Option<JoinHandle<StreamOut>>,
    /// What the sending thread did, once it has ended.
    sent: Option<StreamOut>,
}

impl Stream {
    /// Takes over what the sending thread did, once it has ended.
    fn finish_sending(&mut self) {
        if let Some(thread) = self.sending.take() {
            // A panic was printed when it happened.
            self.sent = Some(thread.join().unwrap_or_default());
        }
    }
}

impl UdpData {
    /// Opens the sockets and begins to receive.
    ///
    /// # Errors
    /// What of the plan this host cannot have, with what to do.
    pub(crate) fn open(opening: Opening<'_>, parameters: UdpParameters) -> Result<Self, SessionError> {
        let place = opening.place;
        let mut data = Self::open_sockets(opening, parameters)
            .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
        let (own, peer, zone) = match (place, data.streams.first()) {
            (ThisEnd::Server { own, peer, .. }, _) => (own.ip(), peer, zone_of(own)),
            (ThisEnd::Client { server, .. }, Some(stream)) => {
                (stream.receiver.local_address().ip(), server.ip(), zone_of(server))
            }
            (ThisEnd::Client { server, .. }, None) => (server.ip(), server.ip(), zone_of(server)),
        };
        data.placement = Placement::new(&data.plan, &data.parameters, own, peer, zone)?;
        data.watch_from_the_start()?;
        data.start_receiving();
        Ok(data)
    }

    /// Watches for drops of what this end receives, and of what a client sends.
    ///
    /// # Errors
    /// Where the plan says `bpf` and there are no events.
    fn watch_from_the_start(&mut self) -> Result<(), SessionError> {
        let mut flows = Vec::new();
        for (number, stream) in (0..).zip(&self.streams) {
            let flow = |port, backward| Flow { port, cookie: self.plan.cookie.of(backward, number).0 };
            // Where this end only sends, the datagrams of the proof arrive here.
            flows.push(flow(stream.receiver.local_address().port(), !self.place.is_server()));
            if self.plan.sends && !self.place.is_server() {
                flows.extend(self.plan.server_ports.get(usize::from(number)).map(|port| flow(*port, false)));
            }
        }
        self.watch(&flows)
    }

    fn watch(&mut self, flows: &[Flow]) -> Result<(), SessionError> {
        let collect = self.parameters.collect;
        if flows.is_empty() || matches!(collect, Collect::Counters | Collect::Off) {
            return Ok(());
        }
        let (units, bytes) = (self.unit_packets_most(), self.parameters.payload_bytes);
        let received = self.streams.iter().map(|stream| (stream.account.clone(), stream.source.clone())).collect();
        match Watch::start(flows, received, self.place.is_server(), units, bytes, self.place.report_bytes()) {
            Ok(watch) => self.watches.push(watch),
            Err(error) => self.caveats.push(no_drop_events(collect, &error)?),
        }
        Ok(())
    }

    /// Packets that may travel as one: what either end's GSO or GRO may join; 1 where each is sent by itself.
    fn unit_packets_most(&self) -> u64 {
        let fit = UNIT_BYTES_MOST / u64::from(self.parameters.payload_bytes.max(1));
        if self.parameters.wire { 1 } else { fit.clamp(1, UNIT_PACKETS_MOST) }
    }

    fn start_receiving(&mut self) {
        if self.plan.receives {
            let accounts: Vec<Account> = self.streams.iter().map(|stream| stream.account.clone()).collect();
            let received = |account: &Account| account.with(|tracker| tracker.counts().received_packets);
            self.cpus = Some(CpuWatch::start(move || accounts.iter().map(received).sum()));
        }
        let (session, backward) = (self.plan.cookie, !self.place.is_server());
        let rows_bytes = room_for_rows(self.place.report_bytes()) / usize::from(self.parameters.streams.max(1));
        let each_packet = self.plan.receives && self.parameters.each_packet;
        for (number, stream) in (0..).zip(&mut self.streams) {
            let cookie = session.of(backward, number);
            let (socket, account, source) =
                (Arc::clone(&stream.receiver), stream.account.clone(), stream.source.clone());
            let (stop, read_bytes) = (Arc::clone(&self.stop_receiving), Arc::clone(&self.read_bytes));
            let probes = ProofQueue::new(number, self.place.client(), &self.events);
            let (cpus, mut stamping) = (self.placement.receiver_cpus.clone(), self.stamping.clone());
            let parameters = self.parameters.clone();
            let rows = each_packet.then(|| PacketRows::new(rows_bytes));
            let receive = move || {
                pin(&cpus);
                let (socket, source, account, read_bytes) = (&*socket, &source, &account, &*read_bytes);
                let of = Receiving { socket, cookie, source, account, parameters: &parameters, read_bytes };
                receive_stream(&of, &mut stamping, &stop, &probes, rows)
            };
            stream.receiving = Builder::new().name(format!("receive {number}")).spawn(receive).ok();
        }
    }

    /// Ends the threads of all streams, and takes over what they leave.
    fn end_threads(&mut self) {
        self.stop_receiving.store(true, Ordering::Relaxed);
        self.stop_sending.store(true, Ordering::Relaxed);
        for stream in &mut self.streams {
            stream.finish_sending();
            // A panic was printed when it happened; the account up to there is valid.
            stream.received = stream.receiving.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        }
    }

    /// The cookie of what arrives on a stream: at the server it was sent forward.
    fn arriving(&self, stream: u8) -> Cookie {
        self.plan.cookie.of(!self.place.is_server(), stream)
    }

    fn collects(&self) -> bool {
        self.parameters.collect != Collect::Off
    }

    /// What lies unread in each socket.
    fn unread(&self) -> Vec<Evidence> {
        let streams = (0..).zip(&self.streams);
        let (report, count) = (self.place.report_bytes(), self.streams.len());
        let evidence = |stream: &Stream| evidence_below(stream.account.with(|tracker| tracker.limit()), report, count);
        let deadline = monotonic() + UNREAD_MOST;
        let unread = |(number, stream): (u8, &Stream)| {
            unread(&stream.receiver, self.arriving(number), deadline, evidence(stream))
        };
        streams.map(unread).collect()
    }

    /// Packets that this host dropped so far: of those that it `sent`, or of those that were sent to it.
    fn dropped_so_far(&self, sent: bool) -> PacketsByLocation {
        let mut sum = PacketsByLocation::default();
        for watch in &self.watches {
            for (sum, packets) in sum.iter_mut().zip(watch.so_far(sent)) {
                *sum += packets;
            }
        }
        sum
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
                    all.unseen_packets = all.unseen_packets.saturating_add(seen.unseen_packets);
                }
            }
        }
        all
    }

    /// What all streams have sent.
    fn sent(&self) -> Sent {
        let outs = || self.streams.iter().filter_map(|stream| stream.sent.as_ref());
        let is_ipv6 = |sender: &Arc<UdpSender>| sender.peer_address().ip().to_canonical().is_ipv6();
        Sent {
            payload_bytes: self.parameters.payload_bytes.into(),
            is_ipv6: self.streams.iter().filter_map(|stream| stream.sender.as_ref()).any(is_ipv6),
            packets: outs().map(|out| out.taken_packets).sum(),
            units: outs().map(|out| out.taken_units).sum(),
            unit_packets_most: self.unit_packets_most(),
        }
    }

    /// Counters that changed, and a caveat where some could not be read.
    fn changes(&self, receives: bool, caveats: &mut Vec<Caveat>) -> Changed {
        if !self.collects() {
            return Changed::default();
        }
        let changed = if receives { self.before.received() } else { self.before.sent(Some(self.sent())) };
        if !caveats.iter().any(|caveat| caveat.is(crate::caveats::COUNTERS_UNREAD)) {
            caveats.extend(changed.unread_caveat());
        }
        changed
    }

    /// What the receiver's report is made of. Takes the streams.
    fn received(&mut self, unread: Vec<Evidence>, caveats: &mut Vec<Caveat>) -> Received {
        let mut changed = self.changes(true, caveats);
        let binding = self.placement.binding();
        if let Some(used) = self.cpus.take().map(CpuWatch::finish) {
            used.add_to(&mut changed.all);
            caveats.extend(used.caveat(binding.as_ref()));
        }
        let asked = self.parameters.sockbuf_bytes.is_some();
        let buffer = self.streams.first().map(|stream| buffer(stream.receiver.receive_buffer()));
        let buffer = buffer.map(|buffer| SocketBuffer { by_default: buffer.asked_bytes.is_some() && !asked, ..buffer });
        let collects = self.collects();
        let cpus = self.streams.iter().map(|stream| stream.received.cpu).collect();
        let (mut streams, mut arrivals, mut socket_drops) = (Vec::new(), Vec::new(), 0);
        for (number, stream) in self.streams.drain(..).enumerate() {
            // The socket's own count from the proof on covers this test alone, with its end.
            if collects {
                let before = stream.dropped_before.into_inner();
                let drops = |memory: SocketMemory| memory.drops.wrapping_sub(before).into();
                socket_drops += stream.receiver.memory().map_or(0, drops);
            }
            let sent = self.peer_sent.get(number).map(|sent| sent.sent_packets);
            let mut account = stream.account.into_tracker();
            arrivals.push(account.take_arrivals());
            let sent = sent.unwrap_or_else(|| account.next_expected());
            streams.push(StreamReceived { packets: stream.received.rows, ..account.finish(sent) });
        }
        let unit_packets_most = self.unit_packets_most();
        let arrivals = Arrivals::of(arrivals);
        let settings = self.placement.settings.take();
        Received {
            streams,
            arrivals,
            cpus,
            unread,
            socket_drops,
            buffer,
            binding,
            settings,
            changed,
            unit_packets_most,
        }
    }
}

impl Data for UdpData {
    fn ports(&self) -> Vec<u16> {
        self.streams.iter().map(|stream| stream.receiver.local_address().port()).collect()
    }

    fn take_caveats(&mut self) -> Vec<Caveat> {
        self.place.name_end(std::mem::take(&mut self.caveats))
    }

    fn send_probe(&self, stream: u8, to: Option<SocketAddr>, bytes: &[u8]) {
        let Some(stream) = self.streams.get(usize::from(stream)) else { return };
        let _ = match (to, &stream.sender) {
            (Some(to), _) => stream.receiver.send_to(bytes, to),
            (None, Some(sender)) => sender.send(bytes, false),
            (None, None) => Ok(()),
        };
    }

    fn proven(&self, to: &[SocketAddr]) {
        for (stream, to) in self.streams.iter().zip(to) {
            // The source is compared, too: what others sent before still waits, and a host may refuse to connect.
            stream.source.prove(*to);
            let _ = stream.receiver.take_from(*to);
            let dropped = stream.receiver.memory().map_or(0, |memory| memory.drops);
            stream.dropped_before.store(dropped, Ordering::Relaxed);
        }
    }

    fn start_sending(&mut self, to: &[SocketAddr]) {
        let server = self.place.is_server();
        if server {
            let flow =
                |(number, to): (u8, &SocketAddr)| Flow { port: to.port(), cookie: self.plan.cookie.of(true, number).0 };
            let flows: Vec<_> = (0..).zip(to).map(flow).collect();
            // What fails now is a caveat, as the test has begun.
            if let Err(error) = self.watch(&flows) {
                self.caveats.push(Caveat::new(NO_DROP_EVENTS, error.message, error.remedy));
            }
        }
        for (number, stream) in (0_u8..).zip(&mut self.streams) {
            let socket = match (&stream.sender, to.get(usize::from(number))) {
                (Some(sender), _) => Ok(Arc::clone(sender)),
                (None, Some(to)) => connected_sender(&stream.receiver, *to, &self.parameters),
                (None, None) => continue,
            };
            if let Ok(socket) = &socket {
                stream.sender.get_or_insert_with(|| Arc::clone(socket));
            }
            let cookie = self.plan.cookie.of(server, number);
            let (parameters, events) = (self.parameters.clone(), self.events.clone());
            let stop = Arc::clone(&self.stop_sending);
            let spawned = Builder::new().name(format!("send {number}")).spawn(move || {
                let sent = match socket {
                    Ok(socket) => {
                        pin(&parameters.affinity.sender_cpus);
                        send_stream(&socket, &parameters, cookie, &stop)
                    }
                    Err(error) => StreamOut { failure: Some(error.to_string()), ..StreamOut::default() },
                };
                // The driver may have given up.
                let _ = events.send(Event::StreamSent(number));
                sent
            });
            match spawned {
                Ok(thread) => stream.sending = Some(thread),
                Err(error) => {
                    stream.sent = Some(StreamOut { failure: Some(error.to_string()), ..StreamOut::default() });
                    let _ = self.events.send(Event::StreamSent(number));
                }
            }
        }
    }

    fn dropped_proof(&self) -> Option<String> {
        let (location, why, packets) = self.watches.iter().find_map(Watch::dropped_proof)?;
        let ports: Vec<String> = self.ports().iter().map(u16::to_string).collect();
        let port = if self.place.is_server() { format!(" to UDP port {}", ports.join(", ")) } else { String::new() };
        Some(format!("{packets} datagrams{port} were dropped: {location}, {why}"))
    }

    fn stop_sending(&self) {
        self.stop_sending.store(true, Ordering::Relaxed);
    }

    fn stream_sent(&mut self, stream: u8) -> Option<Vec<StreamSent>> {
        self.streams.get_mut(usize::from(stream))?.finish_sending();
        self.streams.iter().map(|stream| Some(stream.sent.as_ref()?.sent)).collect()
    }

    fn peer_finished(&mut self, streams: Vec<StreamSent>) {
        self.peer_sent = streams;
    }

    fn is_drained(&self) -> Option<bool> {
        if self.peer_sent.is_empty() {
            return None;
        }
        let mut streams = self.streams.iter().zip(&self.peer_sent);
        Some(streams.all(|(stream, sent)| {
            stream.account.with(|tracker| tracker.counts().received_packets) >= sent.sent_packets
        }))
    }

    fn last_arrival(&self) -> Nanos {
        self.streams
            .iter()
            .map(|stream| stream.account.with(|tracker| tracker.last_arrival()))
            .max()
            .unwrap_or_default()
    }

    fn progress(&self) -> Progress {
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
        progress.dropped_packets = self.dropped_so_far(false);
        progress
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    fn dropped_of_sent(&self) -> PacketsByLocation {
        self.dropped_so_far(true)
    }

    fn report(mut self: Box<Self>) -> EndReport {
        self.end_threads();
        let mut caveats = std::mem::take(&mut self.caveats);
        caveats.extend(self.stamping.caveats());
        caveats.extend(stepped(self.parameters.timestamps, self.realtime, realtime_offset()));
        // Before the events end, as a packet with a wrong checksum is dropped when it is read.
        let unread = if self.plan.receives && self.collects() { self.unread() } else { Vec::new() };
        let seen = self.seen();
        let sender = self.plan.sends.then(|| {
            let changed = self.changes(false, &mut caveats);
            let socket = self.streams.iter().find_map(|stream| stream.sender.as_ref());
            let buffer = socket.map(|socket| buffer(socket.send_buffer()));
            let outs = self.streams.iter_mut().map(|stream| stream.sent.take().unwrap_or_default()).collect();
            sender_report(&self.parameters, outs, buffer, changed, seen.as_ref(), &mut caveats)
        });
        let receiver = self.plan.receives.then(|| {
            let received = self.received(unread, &mut caveats);
            receiver_report(&self.parameters, received, seen.as_ref())
        });
        // A host that cannot be written as JSON is left out.
        let host = serde_json::to_value(HostSnapshot::take()).unwrap_or_default();
        EndReport {
            udp: Some(UdpEndReport { sender, receiver }),
            host,
            caveats: self.place.name_end(caveats),
            ..EndReport::default()
        }
    }
}

impl Drop for UdpData {
    /// The threads have the sockets: the next test may have the same port, and gets datagrams by the order of its sockets there.
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// Bytes for the rows of all packets in a report: as text half of it.
fn room_for_rows(report_bytes: u64) -> usize {
    usize::try_from(report_bytes / 8 * 3).unwrap_or(usize::MAX).min(ROWS_BYTES_MOST)
}
