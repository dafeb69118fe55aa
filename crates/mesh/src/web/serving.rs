//! Connections, with bounds: how many, how long, how much of each, also in the kernel.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use longhaul_channel::{Places, Taken};
use longhaul_kernel::stderr_line;
use longhaul_kernel::tcp::{receive_buffer, send_buffer, set_reset_on_close, unacknowledged_bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Connections at the same time. Where there are more, one of the address that has most of them is closed.
const CONNECTIONS_MOST: usize = 256;
/// How long the encryption may take to begin, and a question to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection is closed after this: also one that reads its answer a byte at a time.
const CONNECTION_LASTS: Duration = Duration::from_secs(300);
/// A connection is closed whose reader takes nothing of its answer for this long. Of an answer that is longer than the send buffer the kernel takes
/// more when a third of that is free: who reads 8 kB/s gets all of it, who reads less than 4 kB/s does not.
const STALLED: Duration = Duration::from_secs(20);
/// How often to look whether the other end has acknowledged all of what was written.
const LOOK: Duration = Duration::from_millis(50);
/// The first lines of a question, with all headers.
const HEADER_BYTES_MOST: usize = 16 << 10;
const HEADERS_MOST: usize = 64;
/// Answers that the other end has not acknowledged: over round trips of 200 ms good for 10 Mb/s. The kernel counts twice as much, with its own
/// bookkeeping.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// Questions that were not read; counted alike.
const RECEIVE_BUFFER_BYTES: usize = 32 << 10;

/// Answers connections, for ever.
pub(super) async fn serve(listener: StdListener, tls: Option<TlsAcceptor>, router: Router) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return stderr_line!("page: {error}"),
    };
    let places = Arc::new(Mutex::new(Places::new(CONNECTIONS_MOST)));
    loop {
        let Ok((mut stream, from)) = listener.accept().await else {
            // Out of descriptors: others end soon.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        if bound(&stream).is_err() {
            continue;
        }
        let (handle, displaced) = oneshot::channel::<Infallible>();
        // What has lost its place ends with the handle that is dropped here.
        let Some(Taken { number, .. }) = lock(&places).take(from.ip(), handle) else { continue };
        let (tls, router, places) = (tls.clone(), router.clone(), Arc::clone(&places));
        tokio::spawn(async move {
            // What one connection does wrong is its own affair.
            let connection = timeout(CONNECTION_LASTS, connection(&mut stream, tls, router));
            tokio::select! {
                _ = connection => {}
                _ = displaced => {}
            }
            drop(stream);
            lock(&places).leave(number);
        });
    }
}

fn lock<T>(places: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each step of it is whole.
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connection(stream: &mut TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    // A reader that is far away waits for less.
    let _ = stream.set_nodelay(true);
    let reads = match tls {
        None => answer(&mut *stream, router).await,
        Some(tls) => match timeout(PATIENCE, tls.accept(&mut *stream)).await {
            Ok(Ok(stream)) => answer(stream, router).await,
            Ok(Err(_)) | Err(_) => true,
        },
    };
    if reads {
        end(stream).await;
    }
}

/// Bounds what the kernel keeps for a connection, and has it keep nothing when that is closed, as it is when this program ends, however it does.
fn bound(stream: &TcpStream) -> io::Result<()> {
    send_buffer(stream, Some(SEND_BUFFER_BYTES))?;
    receive_buffer(stream, Some(RECEIVE_BUFFER_BYTES))?;
    set_reset_on_close(stream, true)
}

/// Says that no more comes, and waits until the other end has acknowledged that and all that was written, or stalls: one that reads slowly gets the rest
/// of its answer from the kernel. A connection that ends otherwise is reset, or the kernel would keep for minutes what is not acknowledged, and what
/// arrived out of order.
async fn end(stream: &mut TcpStream) {
    // One that is encrypted may have failed before its end was said.
    let _ = stream.shutdown().await;
    let (mut least, mut since) = (u64::MAX, Instant::now());
    while let Ok(left) = unacknowledged_bytes(&*stream)
        && since.elapsed() < STALLED
    {
        if left == 0 {
            let _ = set_reset_on_close(&*stream, false);
            return;
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        sleep(LOOK).await;
    }
}

/// Answers the questions of one connection. `false` where its reader stalled.
pub(super) async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send, router: Router) -> bool {
    answer_within(stream, router, STALLED).await
}

/// The same, for a reader that takes nothing for at most so long.
pub(super) async fn answer_within(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    router: Router,
    stalled: Duration,
) -> bool {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADER_BYTES_MOST)
        .max_headers(HEADERS_MOST);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(stalled));
    let served = builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router)).await;
    let cause = served.as_ref().err().and_then(Error::source).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_none_or(|cause| cause.kind() != ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream as StdStream};

    use axum::routing::get;
    use longhaul_kernel::process::allow_many_files;
    use longhaul_kernel::sock_diag::{InetFilter, InetMemory, InetSocket, InetSockets};
    use longhaul_kernel::socket_filter::SocketFilter;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpSocket;

    use super::*;

    const QUESTION: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    /// A state of `tcp_states.h`: this end was closed, and the other has not acknowledged that.
    const FIN_WAIT_1: u8 = 4;

    /// Runs `ask` beside a page at an address, whose one answer has so many bytes.
    async fn asked<T>(length: usize, ask: impl AsyncFnOnce(SocketAddr) -> T) -> T {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(move || async move { vec![b'a'; length] }));
        tokio::select! {
            () = serve(listener, None, router) => panic!("it ended"),
            asked = timeout(Duration::from_secs(60), ask(address)) => asked.unwrap(),
        }
    }

    /// The page's connections that the kernel has, also those that no program has any more: their states and their memory.
    fn sockets(page: SocketAddr) -> Vec<(u8, InetMemory)> {
        let mut found = Vec::new();
        let each = |socket: &InetSocket<'_>| {
            // One that only waits for time to pass has no memory.
            if let (true, Some(memory)) = (socket.local == page, socket.memory()) {
                found.push((socket.state, memory));
            }
        };
        InetSockets::tcp().unwrap().dump(InetFilter::Port(page.port()), each).unwrap();
        found
    }

    #[test]
    fn the_kernel_keeps_little_for_who_does_not_read_and_nothing_after_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (page, clients, full) = runtime.block_on(asked(4 << 20, async |page| {
            let clients: [_; 16] = std::array::from_fn(|_| StdStream::connect(page).unwrap());
            clients.iter().for_each(|mut client| client.write_all(QUESTION).unwrap());
            let mut before = Vec::new();
            loop {
                sleep(LOOK).await;
                let now = sockets(page);
                let is_full = |(_, memory): &(u8, InetMemory)| memory.write_queue_bytes as usize > SEND_BUFFER_BYTES;
                if now == before && now.len() == clients.len() && now.iter().all(is_full) {
                    break (page, clients, now);
                }
                before = now;
            }
        }));
        // The last packet begins within the buffer.
        let most = 2 * SEND_BUFFER_BYTES + (128 << 10);
        for (_, memory) in full {
            assert!(memory.write_queue_bytes as usize <= most, "{memory:?}");
            assert!(memory.receive_buffer_bytes as usize <= 2 * RECEIVE_BUFFER_BYTES, "{memory:?}");
        }
        // As a killed program: each connection is closed as it is.
        drop(runtime);
        assert_eq!(sockets(page), Vec::new());
        drop(clients);
    }

    /// Not even the end of its connection. The kernel would keep that for minutes, with what arrived out of order.
    #[tokio::test]
    async fn nothing_of_who_acknowledges_nothing_stays_in_the_kernel() {
        allow_many_files().unwrap();
        asked(1, async |page| {
            let deaf: [_; 8] = std::array::from_fn(|_| StdStream::connect(page).unwrap());
            deaf.iter().for_each(|client| SocketFilter::nothing().attach(client).unwrap());
            let mut others = Vec::new();
            // Theirs are the places of those that came first.
            for _ in 0..CONNECTIONS_MOST {
                others.push(TcpStream::connect(page).await.unwrap());
            }
            while sockets(page).len() != CONNECTIONS_MOST {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// What is left of it is in the kernel when the connection is over.
    #[tokio::test]
    async fn who_reads_slowly_gets_the_whole_answer() {
        let length = SEND_BUFFER_BYTES * 3 / 2;
        let read = asked(length, async |page| {
            let socket = TcpSocket::new_v4().unwrap();
            // Most of the answer waits at the page.
            socket.set_recv_buffer_size(16 << 10).unwrap();
            let mut client = socket.connect(page).await.unwrap();
            client.write_all(QUESTION).await.unwrap();
            while sockets(page).iter().all(|(state, _)| *state != FIN_WAIT_1) {
                sleep(LOOK).await;
            }
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.unwrap();
            read
        })
        .await;
        assert!(read.starts_with(b"HTTP/1.1 200") && read.len() > length, "{}", read.len());
    }
}
