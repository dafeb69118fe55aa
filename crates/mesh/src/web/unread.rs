//! Answers that are made and not read yet: their bytes have a bound, so that readers who do not read take no memory from the coordinator.

use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api::Refusal;

/// Bytes of all answers that are not read yet.
const UNREAD_BYTES_MOST: usize = 64 << 20;
/// An answer up to this is not counted: there are no more of them than connections.
const SMALL_BYTES: usize = 32 << 10;

static UNREAD: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(UNREAD_BYTES_MOST)));

/// An answer that counts until it is sent.
struct Held {
    bytes: Bytes,
    _count: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Sends an answer, or says that too many are not read yet.
pub(super) async fn counted(request: Request, next: Next) -> Response {
    let (parts, body) = next.run(request).await.into_parts();
    // All of them are in memory already.
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer was not made").into_response();
    };
    if bytes.len() <= SMALL_BYTES {
        return Response::from_parts(parts, Body::from(bytes));
    }
    // The whole bound for an answer that is longer.
    let count = u32::try_from(bytes.len().min(UNREAD_BYTES_MOST)).unwrap_or(u32::MAX);
    match Arc::clone(&UNREAD).try_acquire_many_owned(count) {
        Ok(count) => Response::from_parts(parts, Body::from(Bytes::from_owner(Held { bytes, _count: count }))),
        Err(_) => Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "others have not read their answers yet; ask again in some seconds, or for fewer days",
        )
        .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::{sleep, timeout};

    use super::super::serving::{answer, answer_within};
    use super::*;

    const ANSWER: usize = 10 << 20;

    async fn ask(router: &Router, path: &str) -> DuplexStream {
        let (mut here, there) = tokio::io::duplex(4096);
        tokio::spawn(answer(there, router.clone()));
        here.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").as_bytes())
            .await
            .unwrap();
        here
    }

    async fn first_line(from: &mut DuplexStream) -> String {
        let mut first = [0; 12];
        from.read_exact(&mut first).await.unwrap();
        String::from_utf8_lossy(&first).into_owned()
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_do_not_add_up() {
        let router = Router::new()
            .route("/long", get(|| async { vec![b'a'; ANSWER] }))
            .route("/short", get(|| async { "a" }))
            .layer(from_fn(counted));
        let mut unread = Vec::new();
        for _ in 0..UNREAD_BYTES_MOST / ANSWER {
            let mut one = ask(&router, "/long").await;
            assert_eq!(first_line(&mut one).await, "HTTP/1.1 200");
            unread.push(one);
        }
        assert_eq!(first_line(&mut ask(&router, "/long").await).await, "HTTP/1.1 503");
        assert_eq!(first_line(&mut ask(&router, "/short").await).await, "HTTP/1.1 200");
        // A reader that reads frees its bytes, and so does one that goes away.
        let mut all = Vec::new();
        unread.pop().unwrap().read_to_end(&mut all).await.unwrap();
        assert!(all.len() > ANSWER);
        let mut again = ask(&router, "/long").await;
        assert_eq!(first_line(&mut again).await, "HTTP/1.1 200");
        drop((again, unread));
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
            if UNREAD.available_permits() == UNREAD_BYTES_MOST {
                return;
            }
        }
        panic!("{} bytes still count", UNREAD_BYTES_MOST - UNREAD.available_permits());
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_left() {
        let router = Router::new().route("/long", get(|| async { vec![b'a'; ANSWER] }));
        let (mut here, there) = tokio::io::duplex(4096);
        let answer = tokio::spawn(answer_within(there, router, Duration::from_millis(100)));
        here.write_all(b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(!timeout(Duration::from_secs(20), answer).await.unwrap().unwrap(), "it did not stall");
        let mut rest = Vec::new();
        here.read_to_end(&mut rest).await.unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 200") && rest.len() <= 4096, "{}", rest.len());
    }
}
