//! The data part of a TCP test.

use crate::caveats;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use longhaul_host::HostSnapshot;
use longhaul_kernel::address::at_port;
use longhaul_kernel::clock::{monotonic, realtime_offset};
use longhaul_kernel::tcp::{
    TcpOptions, TunedBuffer, receive_buffer, saved_syn, send_buffer, set_max_pacing_rate, set_up_accepted,
};
use longhaul_result::Caveat;
use longhaul_session::EndReport;
use longhaul_session::{DataPlan, Progress, SessionError, left_for_samples};
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;
use longhaul_tcp::{SynReceived, TcpEndReport, TcpStreamReport};
use longhaul_terms::Collect;
use longhaul_terms::SocketBuffer;
use longhaul_terms::StreamSent;
use longhaul_units::{BitRate, Nanos};

use super::congestion::Congestion;
use super::connections::{Accepting, Connections, connect_all, give_receive_buffer};
use super::counts::Counts;
use super::drops::Drops;
use super::flow::Flow;
use super::sampler::{Room, Sampled, Sampler};
use super::sending::Block;
use crate::cpu_use::CpuWatch;
use crate::cpus::may_use;
use crate::data::{Data, DataPort, Opening, SenderNow, ThisEnd, buffer, not_granted};
use crate::event::Event;

/// The open data part of a TCP test: its flows, and what is sampled and counted around them.
pub(crate) struct TcpData {
    plan: DataPlan,
    parameters: TcpParameters,
    place: ThisEnd,
    /// Resolved; only where this end sends.
    congestion: Congestion,
    drops: Drops,
    cpus: Option<CpuWatch>,
    flows: BTreeMap<TcpStreamId, Flow>,
    /// At the server, until all connections are there.
    accepting: Option<Accepting>,
    /// At the client, until all are there.
    connecting: Option<JoinHandle<Result<Connections, SessionError>>>,
    port: u16,
    options: TcpOptions,
    /// At the server: what connections get back that had a small receive buffer, where the kernel tunes it.
    tuned: Option<TunedBuffer>,
    sampler: Sampler,
    stop_sending: Arc<AtomicBool>,
    stop_receiving: Arc<AtomicBool>,
    /// What the other end reports that it sent.
    peer_sent: Vec<StreamSent>,
    caveats: Vec<Caveat>,
    events: Sender<Event>,
}

impl TcpData {
    /// Begins to listen at the server, to connect at the client.
    ///
    /// # Errors
    /// What of the plan this host cannot have, with what to do.
    pub(crate) fn open(opening: Opening<'_>, parameters: TcpParameters) -> Result<Self, SessionError> {
        let Opening { plan, place, events } = opening;
        let affinity = &parameters.affinity;
        if plan.sends {
            may_use(&affinity.sender_cpus)?;
        }
        if plan.receives {
            may_use(&affinity.receiver_cpus)?;
        }
        let mut caveats = Vec::new();
        let congestion =
            if plan.sends { Congestion::resolve(&parameters, place, &mut caveats)? } else { Congestion::default() };
        let drops = Drops::watch(&parameters, &mut caveats)?;
        let options = TcpOptions {
            buffer_bytes: parameters.window_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            largest_segment_bytes: parameters.mss_bytes,
            multipath: parameters.mptcp,
            traffic_class: parameters.traffic_class,
        };
        let room = match place {
            ThisEnd::Server { caps, .. } => Room::within(left_for_samples(&caps, &parameters)),
            ThisEnd::Client { .. } => Room::default(),
        };
        let tunes = place.is_server() && parameters.window_bytes.is_none() && !parameters.mptcp;
        let tuned = tunes.then(TunedBuffer::of_namespace).flatten();
        let (mut accepting, mut connecting, mut port) = (None, None, 0);
        match place {
            ThisEnd::Server { data_port: DataPort::Control(_), .. } if parameters.mptcp => {
                let message = "this server has one port for control and data, which MPTCP cannot use";
                return Err(SessionError::new("data_socket", message, "use plain TCP, or another --data-port there"));
            }
            // Its listener passes the connections on.
            ThisEnd::Server { data_port: DataPort::Control(control), .. } => port = control,
            ThisEnd::Server { own, peer, data_port, .. } => {
                let at = at_port(own, data_port.number());
                let opened = Accepting::start(at, peer, &options, parameters.streams, tuned, events)?;
                port = opened.port();
                accepting = Some(opened);
            }
            ThisEnd::Client { server, source } => {
                let port = plan.server_ports.first().copied().unwrap_or_default();
                let at = at_port(server, port);
                connecting = Some(connect_all(at, source, &options, &plan, &parameters, events)?);
            }
        }
        Ok(Self {
            place,
            congestion,
            drops,
            cpus: None,
            flows: BTreeMap::new(),
            accepting,
            connecting,
            port,
            options,
            tuned,
            sampler: Sampler::new(&parameters, room),
            stop_sending: Arc::default(),
            stop_receiving: Arc::default(),
            peer_sent: Vec::new(),
            caveats,
            events: events.clone(),
            plan,
            parameters,
        })
    }

    /// What the kernel gave of the buffers that were asked for.
    fn check_buffers(&mut self, stream: &TcpStream) {
        let Some(asked) = self.parameters.window_bytes else { return };
        let asked_bytes = usize::try_from(asked).ok();
        let grants = [
            ("send", "net.core.wmem_max", send_buffer(stream, None), self.plan.sends),
            ("receive", "net.core.rmem_max", receive_buffer(stream, None), self.plan.receives),
        ];
        for (which, limit, grant, used) in grants {
            if let (Ok(grant), true) = (grant, used) {
                let grant = longhaul_kernel::udp::BufferGrant { asked_bytes, ..grant };
                self.caveats.extend(not_granted(which, limit, grant));
            }
        }
    }

    /// What is known of a flow beside its samples.
    fn describe(&self, id: TcpStreamId, flow: &Flow, report: &mut TcpStreamReport, caveats: &mut Vec<Caveat>) {
        report.backward = id.backward;
        report.stream = id.stream;
        report.sends = flow.sends;
        let address = flow.socket().local_addr().ok();
        report.address = address.map(|address| address.ip().to_canonical());
        report.port = address.map_or(0, |address| address.port());
        let counts = &flow.counts;
        report.omitted_bytes = counts.omitted_bytes();
        report.bytes = counts.bytes() - report.omitted_bytes;
        report.first_ns = counts.first_ns();
        report.last_ns = counts.last_ns();
        report.failure = counts.failure();
        report.cpu = counts.cpu();
        report.transfers_ns = counts.transfers_ns();
        if self.place.is_server() {
            report.syn_received = saved_syn(flow.socket()).ok().and_then(|syn| SynReceived::parse(&syn));
        }
        let asked_bytes = self.parameters.window_bytes;
        let grant = |grant: std::io::Result<_>| grant.ok().map(|grant| SocketBuffer { asked_bytes, ..buffer(grant) });
        report.send_buffer = grant(send_buffer(flow.socket(), None));
        report.receive_buffer = grant(receive_buffer(flow.socket(), None));
        if let Some(sent) = self.peer_sent.get(usize::from(id.stream)).filter(|_| !flow.sends) {
            let missing = sent.sent_bytes.saturating_sub(counts.bytes());
            if missing > 0 && report.failure.is_none() {
                let message = format!("stream {}: {missing} bytes had not arrived when the test ended", id.stream);
                caveats.push(Caveat::new(caveats::NOT_DRAINED, message, "use a smaller window, or a longer test"));
            }
        }
    }
}

impl Data for TcpData {
    /// A server waits for connections, a client has to have them.
    fn is_open(&self) -> bool {
        self.place.is_server()
    }

    fn finish_opening(&mut self) -> Result<(), SessionError> {
        let Some(thread) = self.connecting.take() else { return Ok(()) };
        // A panic was printed when it happened.
        let panicked = |_| SessionError::new("internal", "the connecting thread ended early", "report this");
        for (id, connection) in thread.join().map_err(panicked)?? {
            self.admit(id, connection);
        }
        Ok(())
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn take_caveats(&mut self) -> Vec<Caveat> {
        self.place.name_end(std::mem::take(&mut self.caveats))
    }

    /// The connection begins to receive, or waits to send.
    fn admit(&mut self, id: TcpStreamId, stream: TcpStream) {
        let sends = id.backward == self.place.is_server();
        if self.place.is_server() {
            // What the kernel did not give is told below.
            let _ = set_up_accepted(&stream, &self.options);
        }
        if self.flows.is_empty() {
            self.check_buffers(&stream);
        }
        if self.place.is_server() {
            give_receive_buffer(&stream, sends, self.tuned);
        }
        let mut flow = Flow::new(id, sends, stream);
        if sends {
            if let Some(bps) = self.parameters.pace_bps
                && let Err(error) = set_max_pacing_rate(flow.socket(), BitRate(bps))
            {
                self.caveats.push(Caveat::new(
                    caveats::NOT_PACED,
                    format!("the kernel does not pace this stream: {error}"),
                    "",
                ));
            }
            if let Err(error) = self.congestion.begin(flow.socket()) {
                let message = format!("a stream has the system's congestion control, not the one asked for: {error}");
                self.caveats.push(Caveat::new(caveats::CONGESTION_CONTROL_NOT_SET, message, "run the test again"));
            }
        } else {
            // Who keeps to the cap does not wait.
            let most_bps = self.place.rate_cap().map(|cap| 2 * cap.0 / u64::from(self.parameters.streams.max(1)));
            flow.receive(&self.parameters, most_bps, &self.stop_receiving, &self.events);
        }
        self.drops.follow(&flow);
        let congestion = if sends { self.congestion.clone() } else { Congestion::default() };
        self.sampler.follow(Sampled::new(&flow, congestion));
        self.flows.insert(id, flow);
        let both = self.plan.sends && self.plan.receives;
        if self.flows.len() == usize::from(self.parameters.streams) * if both { 2 } else { 1 } {
            // No further connection is expected.
            self.accepting = None;
            let counts: Vec<Arc<Counts>> = self.flows.values().map(Flow::counts).collect();
            self.cpus = Some(CpuWatch::start(move || counts.iter().map(|counts| counts.bytes()).sum()));
            self.sampler.start();
        }
    }

    fn start_sending(&mut self, _: &[SocketAddr]) {
        self.sampler.begin_sending();
        let block = Block::new(&self.parameters).map(Arc::new);
        for flow in self.flows.values_mut().filter(|flow| flow.sends) {
            match &block {
                Ok(block) => flow.send(block, &self.parameters, &self.stop_sending, &self.events),
                Err(error) => flow.fail(error, &self.events),
            }
        }
    }

    fn stop_sending(&self) {
        self.stop_sending.store(true, Ordering::Relaxed);
    }

    fn stream_sent(&mut self, stream: u8) -> Option<Vec<StreamSent>> {
        let id = TcpStreamId { backward: self.place.is_server(), stream };
        self.flows.get_mut(&id)?.sent = true;
        let sending = || self.flows.values().filter(|flow| flow.sends);
        sending().all(|flow| flow.sent).then(|| {
            let of = |flow: &Flow| StreamSent {
                sent_packets: 0,
                sent_bytes: flow.counts.bytes(),
                first_sent_ns: flow.counts.first_ns(),
                last_sent_ns: flow.counts.last_ns(),
            };
            sending().map(of).collect()
        })
    }

    fn peer_finished(&mut self, streams: Vec<StreamSent>) {
        self.peer_sent = streams;
    }

    fn is_drained(&self) -> Option<bool> {
        if self.peer_sent.is_empty() {
            return None;
        }
        Some(self.flows.values().filter(|flow| !flow.sends).all(|flow| flow.counts.is_over()))
    }

    fn last_arrival(&self) -> Nanos {
        let receiving = self.flows.values().filter(|flow| !flow.sends);
        Nanos(receiving.map(|flow| flow.counts.last_ns()).max().unwrap_or(0))
    }

    fn progress(&self) -> Progress {
        let receiving = || self.flows.values().filter(|flow| !flow.sends);
        let first = receiving().map(|flow| flow.counts.arrived_ns()).filter(|ns| *ns > 0).min();
        Progress {
            elapsed_ns: first.map_or(0, |first| monotonic().0.saturating_sub(first)),
            payload_bytes: receiving().map(|flow| flow.counts.bytes()).sum(),
            dropped_data: self.drops.so_far(self.place.is_server(), false),
            ..Progress::default()
        }
    }

    fn read_bytes(&self) -> u64 {
        self.flows.values().filter(|flow| !flow.sends).map(|flow| flow.counts.bytes()).sum()
    }

    fn sender_now(&self) -> Option<SenderNow> {
        let dropped_data = || self.drops.so_far(self.place.is_server(), true);
        self.plan.sends.then(|| SenderNow { dropped_data: dropped_data(), ..self.sampler.now() })
    }

    fn connections(&self) -> Vec<Arc<TcpStream>> {
        self.flows.values().map(Flow::shared_socket).collect()
    }

    fn report(mut self: Box<Self>) -> EndReport {
        self.stop_sending.store(true, Ordering::Relaxed);
        self.stop_receiving.store(true, Ordering::Relaxed);
        self.flows.values_mut().for_each(Flow::join);
        let mut sampled = self.sampler.finish();
        let mut tcp = TcpEndReport {
            sampling: sampled.cost,
            unix_offset_ns: Some(realtime_offset().offset_ns),
            ..TcpEndReport::default()
        };
        let mut caveats = std::mem::take(&mut self.caveats);
        for (id, flow) in &self.flows {
            let mut report = sampled.flows.remove(id).unwrap_or_default();
            self.describe(*id, flow, &mut report, &mut caveats);
            tcp.streams.push(report);
        }
        caveats.extend(sampled.caveat);
        let drops = std::mem::take(&mut self.drops);
        if self.parameters.collect != Collect::Off {
            drops.finish(&self.plan, self.place.is_server(), &mut tcp, &mut caveats);
        }
        if let Some(used) = self.cpus.take().map(CpuWatch::finish) {
            used.add_to(&mut tcp.counters);
            let remedy = "give the reader a CPU of its own, or ask for a lower rate";
            let caveat = used.caveat(None).filter(|_| self.plan.receives);
            caveats.extend(caveat.map(|caveat| caveat.with_remedy(remedy)));
        }
        // A host that cannot be written as JSON is not looked at.
        let host = serde_json::to_value(HostSnapshot::take()).unwrap_or_default();
        EndReport { tcp: Some(tcp), host, caveats: self.place.name_end(caveats), ..EndReport::default() }
    }
}

impl Drop for TcpData {
    /// Without a report the test was cut.
    fn drop(&mut self) {
        self.stop_sending.store(true, Ordering::Relaxed);
        self.stop_receiving.store(true, Ordering::Relaxed);
        self.flows.values_mut().for_each(Flow::cut);
        // Its thread has the connections, too.
        drop(self.sampler.finish());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::IpAddr;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use longhaul_session::Caps;
    use longhaul_tcp::proof::{TCP_HELLO_BYTES, TcpCookie};
    use longhaul_wire::probe::Cookie;

    use super::*;

    /// A server's part of a test with one connection, that connection before it is of the test, and its other end.
    fn opened(backward: bool, window_bytes: Option<u64>) -> (TcpData, TcpStream, TcpStream) {
        let here = IpAddr::from([127, 0, 0, 1]);
        let place =
            ThisEnd::Server { own: (here, 0).into(), peer: here, caps: Caps::default(), data_port: DataPort::Any };
        let parameters = TcpParameters { window_bytes, collect: Collect::Off, ..TcpParameters::default() };
        let plan = DataPlan {
            parameters: parameters.clone().into(),
            cookie: Cookie::new(0, false, 0),
            tcp_cookie: TcpCookie::of_words(1, 2),
            server_ports: Vec::new(),
            sends: backward,
            receives: !backward,
        };
        let (events, receiver) = channel();
        let data = TcpData::open(Opening { plan, place, events: &events }, parameters).unwrap();
        let mut client = TcpStream::connect((here, data.port)).unwrap();
        client.write_all(&[0; TCP_HELLO_BYTES]).unwrap();
        match receiver.recv_timeout(Duration::from_secs(5)) {
            Ok(Event::Connection { connection, .. }) => (data, connection, client),
            other => panic!("{other:?}"),
        }
    }

    /// One over which the server only sends keeps the small one.
    #[test]
    fn a_connection_of_the_test_gets_its_receive_buffer() {
        for (backward, window_bytes) in [(false, None), (true, Some(1 << 20))] {
            let (mut data, connection, _client) = opened(backward, window_bytes);
            let given = |connection: &TcpStream| receive_buffer(connection, None).unwrap().given_bytes;
            let small = given(&connection);
            let id = TcpStreamId { backward, stream: 0 };
            data.admit(id, connection);
            let now = given(data.flows[&id].socket());
            assert!(if backward { now == small } else { now > small }, "{backward}: {now} bytes after {small}");
        }
    }

    #[test]
    fn a_test_that_is_cut_has_closed_its_connections() {
        for backward in [false, true] {
            let (mut data, connection, _client) = opened(backward, None);
            let id = TcpStreamId { backward, stream: 0 };
            data.admit(id, connection);
            let socket = Arc::downgrade(&data.flows[&id].shared_socket());
            drop(data);
            assert!(socket.upgrade().is_none(), "{backward}: a thread has it");
        }
    }
}
