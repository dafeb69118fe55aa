//! The interface for programs below `/api/v1/`: questions with GET, answers in JSON. `/api/v1/openapi.json` describes it.
//!
//! Times are RFC 3339 in UTC, shares are from 0 to 1. A key is never taken away and never changes its meaning: that would be `/api/v2/`.

mod answers;
mod asked;
mod handlers;
mod one_test;
mod pairs;

pub(super) use handlers::router;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::OpenApi;

use crate::error::Failure;
use longhaul_kernel::stderr_line;

/// The description of the interface.
#[derive(OpenApi)]
#[openapi(
    info(title = "longhaul mesh", description = "What the coordinator of a mesh knows. All of it is for reading."),
    paths(
        handlers::mesh,
        handlers::sites,
        pairs::pairs,
        pairs::pair,
        pairs::tests,
        pairs::test,
        pairs::file,
        handlers::losses,
        handlers::alarms,
        handlers::schedule
    )
)]
struct Description;

/// The description as JSON.
pub(crate) fn description() -> String {
    let text = Description::openapi().to_pretty_json().unwrap_or_default();
    format!("{text}\n")
}

/// An answer that is JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => Refusal::from(Failure::new(error)).into_response(),
        }
    }
}

/// An answer, or why there is none.
type Answer<T> = Result<Json<T>, Refusal>;

/// Why there is no answer.
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        // Its text names files of the coordinator: they are for its operator alone.
        stderr_line!("page: {failure}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the coordinator cannot read its store; its own messages say why")
    }
}

impl From<crate::store::StoreError> for Refusal {
    fn from(error: crate::store::StoreError) -> Self {
        Failure::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = answers::Refused { error: self.message };
        (self.status, Json(body)).into_response()
    }
}

#[cfg(test)]
mod schemas {
    use super::*;

    /// `make schemas` writes the file; this says where it differs.
    #[test]
    fn the_description_is_the_file_in_packaging() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/openapi/longhaul-mesh.json");
        if std::env::var_os("LONGHAUL_WRITE_SCHEMAS").is_some() {
            std::fs::write(file, description()).unwrap();
        }
        let kept = std::fs::read_to_string(file).unwrap_or_default();
        assert!(kept == description(), "packaging/openapi/longhaul-mesh.json is old: run make schemas");
    }
}
