//! Addresses of the admin listener and their answers.
//!
//! Owns the mapping from addresses to `AdminState` and telemetry, nothing of the state itself.
//! Every request passes the guard before it is routed.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderName, StatusCode};
use serde_json::json;
use uuid::Uuid;

use super::guard::{Access, Denied};
use super::state::AdminState;
use crate::ledger::Said;
use crate::telemetry::Sinks;
use crate::telemetry::labels::{LedgerState, StreamState};

/// Address of the peer, put into each request by the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Everything that answers need. Clones share it.
#[derive(Clone)]
pub struct Admin {
    state: Arc<dyn AdminState>,
    sinks: Arc<Sinks>,
    access: Arc<ArcSwap<Access>>,
}

impl Admin {
    /// Answers about `state` and what `sinks` remember, for those whom `access` lets in now.
    #[must_use]
    pub fn new(
        state: Arc<dyn AdminState>,
        sinks: Arc<Sinks>,
        access: Arc<ArcSwap<Access>>,
    ) -> Self {
        Self {
            state,
            sinks,
            access,
        }
    }

    pub(super) fn sinks(&self) -> &Arc<Sinks> {
        &self.sinks
    }

    /// The routed service; each request must carry a [`Peer`].
    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/v1/openapi.json", get(openapi))
            .route("/v1/status", get(status))
            .route("/v1/apps", get(apps))
            .route("/v1/apps/{name}", get(app))
            .route("/v1/tunnels", get(tunnels))
            .route("/v1/tunnels/{id}", get(tunnel))
            .route("/v1/exchanges/{id}", get(exchange))
            .route("/v1/reload", post(reload))
            .route("/v1/drain", post(drain))
            .route("/v1/agents/{id}/revoke", post(revoke))
            .fallback(nothing_here)
            .method_not_allowed_fallback(wrong_method)
            .layer(middleware::from_fn_with_state(self.clone(), guarded))
            .with_state(self)
    }
}

/// A refusal or fault in the one shape of this listener.
fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({ "error": { "code": code, "message": message } });
    (status, Json(body)).into_response()
}

async fn guarded(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let Some(Peer(peer)) = request.extensions().get().copied() else {
        return problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the server did not say who asks",
        );
    };
    let path = request.uri().path();
    let mut response = match admin
        .access
        .load()
        .check(peer.ip(), path, request.headers())
    {
        Ok(()) => next.run(request).await,
        Err(denied) => refuse(denied),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    response
}

fn refuse(denied: Denied) -> Response {
    let message = denied.to_string();
    match denied {
        Denied::Token => {
            let mut response = problem(StatusCode::UNAUTHORIZED, "token_required", &message);
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            response
        }
        Denied::Remote => problem(StatusCode::FORBIDDEN, "loopback_only", &message),
        Denied::Host => problem(StatusCode::FORBIDDEN, "foreign_host", &message),
        Denied::CrossOrigin => problem(StatusCode::FORBIDDEN, "cross_origin", &message),
    }
}

async fn healthz() -> Response {
    Json(json!({ "status": "alive" })).into_response()
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let reasons = admin.state.readiness().reasons();
    if reasons.is_empty() {
        return Json(json!({ "status": "ready" })).into_response();
    }
    let body = json!({ "status": "not_ready", "reasons": reasons });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let metrics = admin.sinks.metrics();
    let streams = admin.state.streams();
    metrics.set_streams(StreamState::Opening, streams.opening);
    metrics.set_streams(StreamState::Open, streams.open);
    metrics.set_streams(StreamState::Closing, streams.closing);
    let ledger = admin.state.ledger();
    for (state, count) in LedgerState::ALL.iter().zip(ledger.0) {
        metrics.set_ledger(*state, count);
    }
    metrics.set_held_bytes(admin.state.held_bytes());
    let agents = admin.state.agents();
    metrics.set_agents(agents.iter().map(|(app, count)| (app.as_str(), *count)));
    match metrics.render() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be rendered");
            problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "metrics cannot be rendered",
            )
        }
    }
}

async fn openapi() -> Response {
    let document = include_str!("openapi.json");
    ([(CONTENT_TYPE, "application/json")], document).into_response()
}

async fn status(State(admin): State<Admin>) -> Response {
    Json(admin.state.gateway()).into_response()
}

async fn apps(State(admin): State<Admin>) -> Response {
    Json(json!({ "apps": admin.state.apps() })).into_response()
}

async fn app(State(admin): State<Admin>, Path(name): Path<String>) -> Response {
    match admin.state.app(&name) {
        Some(app) => Json(app).into_response(),
        None => problem(
            StatusCode::NOT_FOUND,
            "unknown_app",
            "no route leads to an app of this name",
        ),
    }
}

async fn tunnels(State(admin): State<Admin>) -> Response {
    Json(json!({ "tunnels": admin.state.tunnels() })).into_response()
}

async fn tunnel(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    match admin.state.tunnel(&id) {
        Some(tunnel) => Json(tunnel).into_response(),
        None => problem(
            StatusCode::NOT_FOUND,
            "unknown_tunnel",
            "no tunnel with this id stands",
        ),
    }
}

async fn exchange(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    let Ok(id) = Uuid::try_parse(&id) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "bad_request_id",
            "a request id is the UUID of an X-Request-Id header",
        );
    };
    match (admin.sinks.exchange(id), admin.state.outcome(id)) {
        (None, None) => problem(
            StatusCode::NOT_FOUND,
            "unknown_exchange",
            "never seen here, or no longer remembered",
        ),
        (line, outcome) => {
            let view = exchange_view(id, line, outcome.as_ref());
            ([(CONTENT_TYPE, "application/json")], view).into_response()
        }
    }
}

async fn reload(State(admin): State<Admin>) -> Response {
    let state = Arc::clone(&admin.state);
    match tokio::task::spawn_blocking(move || state.reload()).await {
        Ok(Ok(reloaded)) => Json(reloaded).into_response(),
        Ok(Err(errors)) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let message = "the configuration is not valid, nothing was changed";
            let error = json!({ "code": "invalid_configuration", "message": message });
            (status, Json(json!({ "error": error, "errors": errors }))).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "the reload panicked");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            problem(status, "internal", "the reload failed")
        }
    }
}

/// The fields of an exchange's line in their order, then what the ledger says of it. Either may be
/// forgotten before the other.
fn exchange_view(id: Uuid, line: Option<String>, outcome: Option<&Said>) -> String {
    let mut view = line.unwrap_or_else(|| json!({ "request_id": id.to_string() }).to_string());
    // Words and numbers always serialise.
    let outcome = serde_json::to_string(&outcome).unwrap_or_default();
    view.truncate(view.trim_end_matches('}').len());
    view.push_str(",\"outcome\":");
    view.push_str(&outcome);
    view.push('}');
    view
}

async fn drain(State(admin): State<Admin>) -> Response {
    tracing::info!("drain asked for by the operator");
    admin.state.drain();
    (StatusCode::ACCEPTED, Json(json!({ "draining": true }))).into_response()
}

async fn revoke(State(admin): State<Admin>, Path(id): Path<String>) -> Response {
    match admin.state.revoke(&id) {
        Some(tunnels) => {
            tracing::warn!(
                agent = id,
                count = tunnels,
                "agent revoked until the next start; take its keys out of the configuration"
            );
            Json(json!({ "revoked": id, "tunnels": tunnels })).into_response()
        }
        None => problem(
            StatusCode::NOT_FOUND,
            "unknown_agent",
            "no token names this agent",
        ),
    }
}

async fn nothing_here() -> Response {
    problem(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
}

async fn wrong_method() -> Response {
    problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        "this address wants another method",
    )
}
