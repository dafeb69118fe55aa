//! The sockets of a UDP test: at a server bound to its ports, at a client connected to them, with the buffers and options that were asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use longhaul_kernel::address::at_port;
use longhaul_kernel::clock::realtime_offset;
use longhaul_kernel::udp::{ReceiverOptions, SenderOptions, TimestampMode, UdpOpenError, UdpReceiver, UdpSender};
use longhaul_udp::account::SequenceTracker;
use longhaul_udp::{Timestamps, UdpParameters};
use longhaul_units::Bytes;
use longhaul_wire::probe::Cookie;

use super::{Stream, UdpData};
use crate::counters::Before;
use crate::data::{DataPort, Opening, ThisEnd, not_granted};
use crate::udp::receiving::{Account, Source, StreamIn};
use crate::udp::softirq::Placement;
use crate::udp::stamping::Stamping;

impl UdpData {
    /// Opens a socket for each stream, and at a client one to send by.
    pub(super) fn open_sockets(opening: Opening<'_>, asked: UdpParameters) -> Result<Self, UdpOpenError> {
        let Opening { plan, place, events } = opening;
        let before = Before::take();
        let parameters = &asked;
        let buffer = parameters.sockbuf_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let timestamps = match parameters.timestamps {
            Timestamps::App => TimestampMode::App,
            Timestamps::Kernel => TimestampMode::Kernel,
            Timestamps::Nic => TimestampMode::Nic,
        };
        let receiving = ReceiverOptions {
            receive_buffer_bytes: buffer,
            gro: plan.receives && !parameters.wire,
            timestamps,
            traffic_class: plan.receives && parameters.traffic_class > 0,
            shared_port: matches!(place, ThisEnd::Server { data_port: DataPort::Fixed(_) | DataPort::Control(_), .. }),
        };
        let mut data = Self {
            streams: Vec::new(),
            before,
            placement: Placement::default(),
            cpus: None,
            stamping: Stamping::new(parameters.timestamps),
            watches: Vec::new(),
            place,
            stop_receiving: Arc::default(),
            stop_sending: Arc::default(),
            read_bytes: Arc::default(),
            peer_sent: Vec::new(),
            realtime: realtime_offset(),
            caveats: Vec::new(),
            events: events.clone(),
            plan: plan.clone(),
            parameters: asked.clone(),
        };
        for stream in 0..parameters.streams {
            let (mut receiver, sender, source) = match place {
                ThisEnd::Server { own, data_port, .. } => {
                    let receiver = UdpReceiver::bind(at_port(own, data_port.number()), &receiving)?;
                    if receiving.shared_port && stream == 0 {
                        let (offset, mask) = Cookie::STREAM_BYTE;
                        receiver.share_by_byte(offset, mask)?;
                    }
                    (receiver, None, Source::default())
                }
                ThisEnd::Client { server, source } => {
                    let port = plan.server_ports.get(usize::from(stream)).copied().unwrap_or_default();
                    let options = SenderOptions {
                        send_buffer_bytes: buffer,
                        dont_fragment: parameters.dont_fragment,
                        traffic_class: parameters.traffic_class,
                        ..SenderOptions::default()
                    };
                    let from = source.of_data(stream, server);
                    let to = at_port(server, port);
                    let sender = UdpSender::connect(from, to, &options)?;
                    (sender.receiver(&receiving)?, Some(Arc::new(sender)), Source::Connected(to))
                }
            };
            if plan.receives && buffer.is_some() {
                data.caveats.extend(not_granted("receive", "net.core.rmem_max", receiver.receive_buffer()));
            } else if plan.receives {
                // As much of it as the kernel allows: the result says how much that is.
                let wanted = usize::try_from(parameters.default_receive_buffer()).unwrap_or(usize::MAX);
                receiver.grow_receive_buffer(wanted)?;
            }
            if let Some(sender) = sender.as_ref().filter(|_| plan.sends) {
                data.caveats.extend(not_granted("send", "net.core.wmem_max", sender.send_buffer()));
            }
            let stamped_each = parameters.wire;
            let limit = parameters.packets_of_stream(stream).unwrap_or_else(|| parameters.packets_most());
            let tracker = SequenceTracker::new(limit, stamped_each);
            // In a report base64 has four letters for three bytes.
            let room = |report: Bytes| report.0 / 4 * 3 / u64::from(parameters.streams.max(1));
            let tracker = match place {
                ThisEnd::Server { caps, .. } => tracker.within(room(caps.report)),
                ThisEnd::Client { .. } => tracker,
            };
            data.streams.push(Stream {
                receiver: Arc::new(receiver),
                source,
                dropped_before: AtomicU32::new(0),
                sender,
                account: Account::new(tracker),
                receiving: None,
                received: StreamIn::default(),
                sending: None,
                sent: None,
            });
        }
        Ok(data)
    }
}

/// The socket by which a server sends a stream, once its client's address is proven.
pub(super) fn connected_sender(
    receiver: &UdpReceiver,
    to: SocketAddr,
    parameters: &UdpParameters,
) -> Result<Arc<UdpSender>, UdpOpenError> {
    let options = SenderOptions {
        send_buffer_bytes: parameters.sockbuf_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        dont_fragment: parameters.dont_fragment,
        traffic_class: parameters.traffic_class,
        ..SenderOptions::default()
    };
    receiver.sender_to(to, &options).map(Arc::new)
}
