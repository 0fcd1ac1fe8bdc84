//! HTTP requests to the server. Redirects are not followed, because the token is only for this server.

use std::time::Duration;

use frontdesk_wire::Secret;
use frontdesk_wire::agents::{Class, Fault};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
pub(super) const LIMIT: Duration = Duration::from_secs(15);
/// Streams may be silent for long; keepalives detect a lost peer.
const KEEPALIVE: Duration = Duration::from_secs(30);
const SHOWN_CHARS: usize = 300;

/// `/v1` of a server, with credentials.
#[derive(Clone)]
pub struct AgentsClient {
    base: Secret, // a capability URL is a secret
    token: Option<Secret>,
    pub(super) client: reqwest::Client,
}

impl AgentsClient {
    /// With a token of the agent API, sent as a bearer token.
    pub fn new(base_url: &str, token: Secret) -> Result<Self, Fault> {
        Self::build(base_url, Some(token))
    }

    /// With a capability URL, `https://desk.example/k/{token}`.
    pub fn by_capability(url: &str) -> Result<Self, Fault> {
        Self::build(url, None)
    }

    fn build(base: &str, token: Option<Secret>) -> Result<Self, Fault> {
        #[allow(clippy::disallowed_methods)] // calls only the configured server
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(KEEPALIVE)
            .build();
        let client = client.map_err(|error| Fault::new(Class::UnavailableError, error.without_url().to_string()))?;
        Ok(Self { base: Secret::new(base.trim_end_matches('/')), token, client })
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}/v1/{path}", self.base.expose()));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }

    /// A 2xx response whose body was not read yet.
    pub(super) async fn open(&self, request: RequestBuilder) -> Result<Response, Fault> {
        let response = request.send().await.map_err(away)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        Err(refusal(status.as_u16(), &response.bytes().await.map_err(away)?))
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Fault> {
        let body = self.open(request.timeout(LIMIT)).await?.bytes().await.map_err(away)?;
        read(&body)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        self.ask(self.request(Method::GET, path)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Fault> {
        self.ask(self.request(Method::POST, path).json(body)).await
    }

    /// For requests where only the status counts.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<(), Fault> {
        self.open(request.timeout(LIMIT)).await.map(drop)
    }
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|error| {
        let text = format!("the server sent an invalid response: {error}");
        Fault::new(Class::InternalError, text).with("cause_kind", "malformed_response")
    })
}

/// No response. It is unknown whether the server accepted the request.
pub(super) fn away(error: reqwest::Error) -> Fault {
    let kind = if error.is_timeout() { "timeout" } else { "network" };
    let text = format!("the server does not respond: {}", error.without_url());
    Fault::new(Class::UnavailableError, text).with("cause_kind", kind)
}

/// The fault that the server sent, or one derived from the status if a proxy answered.
fn refusal(status: u16, body: &[u8]) -> Fault {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = match said["error"]["message"].as_str() {
            Some(message) => message.into(),
            None => String::from_utf8_lossy(body),
        };
        let text: String = text.chars().take(SHOWN_CHARS).collect();
        Fault::new(Class::of_status(status), format!("the server answered {status}: {text}"))
            .with("http_status", status)
    })
}

/// One path segment, encoded once. `.` and `..` are path steps however they are encoded, so they are refused.
pub(crate) fn segment(text: &str) -> Result<String, Fault> {
    match text {
        "" | "." | ".." => Err(Fault::invalid(format!("{text:?} cannot be used in a URL path"))),
        _ => Ok(encoded(text)),
    }
}

pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_encoded_once() {
        assert_eq!(segment("alice@term-1").unwrap(), "alice%40term-1");
        assert_eq!(segment("a/b?c#d%40 ä~_.").unwrap(), "a%2Fb%3Fc%23d%2540%20%C3%A4~_.");
        for bad in ["", ".", ".."] {
            assert_eq!(segment(bad).unwrap_err().class, Class::ValidationError);
        }
    }

    #[test]
    fn a_refusal_is_the_fault_sent_or_derived_from_the_status() {
        let said = Fault::skill_not_found("x");
        assert_eq!(refusal(404, serde_json::to_string(&said).unwrap().as_bytes()), said);
        for (status, body, class) in [
            (404, "<html>", Class::NotFoundError),
            (503, "", Class::UnavailableError),
            (418, r#"{"error":{"class":"TeapotError","message":"short and stout"}}"#, Class::InternalError),
        ] {
            let fault = refusal(status, body.as_bytes());
            assert_eq!((fault.class, fault.fields["http_status"].as_u64()), (class, Some(status.into())));
        }
        assert!(refusal(418, br#"{"error":{"class":"T","message":"short"}}"#).message.contains("short"));
    }
}
