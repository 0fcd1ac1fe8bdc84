//! A stub of a Matrix homeserver with one room, the bot and one person. `tests/vendors/matrix.py` uses a real one.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::json;

pub(crate) const ME: &str = "@bot:example.org";
pub(crate) const ANN: &str = "@ann:example.org";

/// Methods and paths of the requests.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

pub(crate) async fn homeserver() -> (String, Seen) {
    async fn answer(State(seen): State<Seen>, request: Request) -> (StatusCode, String) {
        let path = request.uri().path().trim_start_matches("/_matrix/client/v3/").to_owned();
        let last = path.rsplit('/').next().unwrap_or_default();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(format!("{} {path}", request.method()));
            seen.len()
        };
        let body = match last {
            "whoami" => json!({ "user_id": ME }),
            "joined_members" => json!({ "joined": { ME: {}, ANN: { "display_name": "Ann" } } }),
            _ if path.contains("/state/m.room.member/") => json!({ "membership": "join" }),
            _ if path.contains("/send/") => json!({ "event_id": format!("$sent{number}") }),
            _ => return (StatusCode::NOT_FOUND, json!({ "errcode": "M_NOT_FOUND", "error": "none" }).to_string()),
        };
        (StatusCode::OK, body.to_string())
    }
    let seen = Seen::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}
