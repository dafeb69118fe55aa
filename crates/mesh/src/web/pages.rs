//! The page itself, its style and script, and the way to log in.

use std::io::Read;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post};
use flate2::read::GzDecoder;

use super::api::Refusal;
use super::{Web, api, metrics, unread};

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// What is sent to the coordinator at most: a token.
const BODY_BYTES_MOST: usize = 4096;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);
const STYLE: &str = concat!(
    include_str!("../../../study/report/src/html/page/page.css"),
    include_str!("../../../study/report/src/html/over_time/figures.css"),
    include_str!("page.css")
);
/// Scripts, styles and answers come from here alone; styles of figures are set by the script that draws them.
const POLICY: &str = include_str!("policy.txt").trim_ascii();

/// All that is answered.
pub(super) fn router(web: Arc<Web>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics::answer))
        .nest("/api/v1", api::router())
        .layer(from_fn(unread::counted))
        .layer(from_fn_with_state(Arc::clone(&web), guard));
    Router::new()
        .route("/", get(page))
        .route("/login", post(log_in))
        .route("/logout", post(log_out))
        .route("/mesh.js", get(script))
        .route("/mesh.css", get(|| async { kept("text/css; charset=utf-8", STYLE) }))
        .merge(guarded)
        .layer(from_fn(bounded))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MOST))
        .with_state(web)
}

/// Bounds the time of an answer, and says what browsers may do with it.
async fn bounded(request: Request, next: Next) -> Response {
    let busy = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the coordinator is busy; ask again").into_response();
    let mut response = tokio::time::timeout(PATIENCE, next.run(request)).await.unwrap_or_else(|_| busy());
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets through who may read.
async fn guard(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    if web.login.allows(request.headers()) {
        return next.run(request).await;
    }
    let token = "send the token of the coordinator's folder, http-token: Authorization: Bearer TOKEN";
    let message = if web.login.is_public() {
        format!(
            "without a token this page answers to its address (127.0.0.1, localhost), not to another name; or {token}"
        )
    } else {
        token.to_owned()
    };
    Refusal::new(StatusCode::UNAUTHORIZED, message).into_response()
}

fn html(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// What changes with the program alone: its address has its version.
fn kept(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "max-age=31536000, immutable")], text).into_response()
}

/// A name of this version of script and style.
fn version() -> String {
    let hash = EMBEDDED.map_or("", |(_, hash)| hash);
    hash.chars().filter(char::is_ascii_alphanumeric).take(16).chain(STYLE.len().to_string().chars()).collect()
}

async fn page(State(web): State<Arc<Web>>, headers: HeaderMap) -> Response {
    let frame = |body: &str| include_str!("page.html").replace("VERSION", &version()).replace("<!--body-->", body);
    if !web.login.allows(&headers) {
        return html(StatusCode::UNAUTHORIZED, frame(include_str!("login.html")));
    }
    let script = match (EMBEDDED, web.login.is_public()) {
        (None, _) => "<main><h1>longhaul mesh</h1><p>This program was built without the script of its page (<code>make web</code>, \
             which needs Node). <a href=\"/api/v1/openapi.json\">Its interface for programs</a> works.</p></main>"
            .to_owned(),
        (Some(_), public) => {
            format!("<main id=\"page\" data-public=\"{public}\"></main><script src=\"/mesh.js?{}\"></script>", version())
        }
    };
    html(StatusCode::OK, frame(&script))
}

async fn log_in(State(web): State<Arc<Web>>, body: String) -> Response {
    // A token is made of letters and digits that a form sends as they are.
    let token = body.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
    match web.login.cookie(token) {
        Ok(Some(cookie)) => (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response(),
        Ok(None) => {
            let again = include_str!("login.html").replace("hidden", "");
            let page = include_str!("page.html").replace("VERSION", &version()).replace("<!--body-->", &again);
            html(StatusCode::UNAUTHORIZED, page)
        }
        Err(failure) => Refusal::from(failure).into_response(),
    }
}

async fn log_out(State(web): State<Arc<Web>>, headers: HeaderMap) -> Response {
    let cookie = web.login.log_out(&headers).map(|cookie| AppendHeaders([(SET_COOKIE, cookie)]));
    (StatusCode::SEE_OTHER, [(LOCATION, "/")], cookie, ()).into_response()
}

/// The script as it is embedded is packed. It is unpacked once: many who ask for it share it.
static UNPACKED: LazyLock<Option<Bytes>> = LazyLock::new(|| {
    let mut text = Vec::new();
    EMBEDDED.and_then(|(packed, _)| GzDecoder::new(packed).read_to_end(&mut text).ok())?;
    Some(text.into())
});

async fn script(headers: HeaderMap) -> Response {
    let kind = "text/javascript; charset=utf-8";
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (EMBEDDED, &*UNPACKED) {
        (Some((packed, _)), _) if accepted.contains("gzip") => {
            let mut response = kept(kind, packed);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        (_, Some(text)) => kept(kind, text.clone()),
        _ => {
            Refusal::new(StatusCode::NOT_FOUND, "this program was built without the script of its page").into_response()
        }
    }
}
