//! Connections, with bounds: how many, how long, how much of each.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use longhaul_channel::{Places, Taken};
use longhaul_kernel::stderr_line;
use tokio::io::{AsyncRead, AsyncWrite};
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
/// A connection is closed whose reader takes nothing of its answer for this long.
const STALLED: Duration = Duration::from_secs(20);
/// The first lines of a question, with all headers.
const HEADER_BYTES_MOST: usize = 16 << 10;
const HEADERS_MOST: usize = 64;

/// Answers connections, for ever.
pub(super) async fn serve(listener: StdListener, tls: Option<TlsAcceptor>, router: Router) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return stderr_line!("page: {error}"),
    };
    let places = Arc::new(Mutex::new(Places::new(CONNECTIONS_MOST)));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Out of descriptors: others end soon.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (handle, displaced) = oneshot::channel::<Infallible>();
        // What has lost its place ends with the handle that is dropped here.
        let Some(Taken { number, .. }) = lock(&places).take(from.ip(), handle) else { continue };
        let (tls, router, places) = (tls.clone(), router.clone(), Arc::clone(&places));
        tokio::spawn(async move {
            // What one connection does wrong is its own affair.
            let connection = timeout(CONNECTION_LASTS, connection(stream, tls, router));
            tokio::select! {
                _ = connection => {}
                _ = displaced => {}
            }
            lock(&places).leave(number);
        });
    }
}

fn lock<T>(places: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each step of it is whole.
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    // A reader that is far away waits for less.
    let _ = stream.set_nodelay(true);
    match tls {
        None => answer(stream, router).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                answer(stream, router).await;
            }
        }
    }
}

/// Answers the questions of one connection.
pub(super) async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    answer_within(stream, router, STALLED).await;
}

/// The same, for a reader that takes nothing for at most so long.
pub(super) async fn answer_within(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stalled: Duration,
) {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADER_BYTES_MOST)
        .max_headers(HEADERS_MOST);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(stalled));
    let _ = builder.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router)).await;
}
