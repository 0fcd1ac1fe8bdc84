//! The guarded HTTP client: https or http, no private address unless allowed, the address pinned at
//! connect, no redirect followed, no proxy, size and time bounded.
//!
//! Every refusal has the same text, so that callers do not learn which rule refused.

mod guard;
mod socket;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::bail;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{
    Body, Call, Dial, HttpAnswer, HttpMethod, OpenAnswer, Outcall, OutcallError, Part, PartValue, Socket,
};
use futures_util::StreamExt as _;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;
use url::Url;

use guard::Guard;

pub use guard::Allow;

const CONNECT_TIME: Duration = Duration::from_secs(5);
const TOTAL_TIME: Duration = Duration::from_secs(15);
/// The longest time limit that a call may ask for.
const LONGEST_TIME: Duration = Duration::from_secs(30);
/// For an answer that does not end. Its reader notices when no more data comes.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Idle connections per host that are kept for the next calls: many fires to one host should not connect for each.
const IDLE_PER_HOST: usize = 128;
const IDLE_TIME: Duration = Duration::from_secs(10);

/// `[outcall]`: what may be called although its address is private.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub allow: Vec<String>,
}

impl Settings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if let Some(bad) = self.allow.iter().find(|entry| Allow::parse(entry).is_none()) {
            bail!("outcall.allow: {bad:?} is neither a CIDR (10.0.0.0/8) nor a host name");
        }
        Ok(())
    }
}

/// Asks for the addresses of a name.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

fn of_the_machine() -> Lookup {
    Arc::new(|host| Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.collect()) }))
}

/// Resolves names and keeps only addresses that the guard admits; the connection goes to just these. Each lookup of a
/// name is checked again.
struct GuardedResolver {
    guard: Arc<Guard>,
    lookup: Lookup,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        let host = name.as_str().to_owned();
        let found = (self.lookup)(host.clone());
        Box::pin(async move {
            let found = found.await?;
            let any = guard.admits_name(&host);
            let admitted: Vec<SocketAddr> =
                found.into_iter().filter(|at| any || guard.admits_address(at.ip())).collect();
            if admitted.is_empty() {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(OutcallError::Refused));
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

pub struct GuardedClient {
    guard: Arc<Guard>,
    lookup: Lookup,
    /// Instead of connecting, in tests.
    #[cfg(test)]
    dialer: Option<tests::Recorder>,
    /// Created at the first call: reading the machine's certificates costs time and memory.
    client: OnceLock<Result<reqwest::Client, String>>,
    /// For origins that the operator configured: their names may resolve to any address.
    trusting: OnceLock<Result<reqwest::Client, String>>,
}

impl GuardedClient {
    pub fn new(allow: &[String]) -> Self {
        let guard = Guard { allow: allow.iter().filter_map(|entry| Allow::parse(entry)).collect() };
        Self {
            guard: Arc::new(guard),
            lookup: of_the_machine(),
            #[cfg(test)]
            dialer: None,
            client: OnceLock::new(),
            trusting: OnceLock::new(),
        }
    }

    fn client(&self, is_trusted: bool) -> Result<&reqwest::Client, OutcallError> {
        let made = if is_trusted { &self.trusting } else { &self.client };
        let made = made.get_or_init(|| self.build(is_trusted).map_err(|error| error.to_string()));
        made.as_ref().map_err(|error| OutcallError::NotSent(error.clone()))
    }

    fn build(&self, is_trusted: bool) -> reqwest::Result<reqwest::Client> {
        #[allow(clippy::disallowed_methods)] // this is the guarded client that all other code must use
        let builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIME)
            .timeout(TOTAL_TIME)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .pool_idle_timeout(IDLE_TIME)
            .user_agent(concat!("frontdesk/", env!("CARGO_PKG_VERSION")));
        let builder = if is_trusted {
            builder
        } else {
            let resolver = GuardedResolver { guard: self.guard.clone(), lookup: self.lookup.clone() };
            builder.dns_resolver(Arc::new(resolver))
        };
        #[cfg(test)]
        let builder = match &self.dialer {
            Some(recorder) => builder.connector_layer(recorder.clone()),
            None => builder,
        };
        builder.build()
    }

    async fn send(&self, call: Call<'_>) -> Result<reqwest::Response, OutcallError> {
        let is_trusted = call.trusted.is_some_and(|base| has_origin_of(call.url, base));
        let url = match is_trusted {
            true => Guard::parse(call.url)?,
            false => self.guard.check(call.url)?, // the resolver hook is not asked for IP literals
        };
        let method = match call.method {
            HttpMethod::Get => reqwest::Method::GET,
            HttpMethod::Head => reqwest::Method::HEAD,
            HttpMethod::Post => reqwest::Method::POST,
            HttpMethod::Put => reqwest::Method::PUT,
            HttpMethod::Patch => reqwest::Method::PATCH,
            HttpMethod::Delete => reqwest::Method::DELETE,
        };
        let mut request = with_body(self.client(is_trusted)?.request(method, url), call.body)?;
        if let Some(bearer) = call.bearer {
            request = request.bearer_auth(bearer.expose());
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let time = call.time.map(|time| time.min(LONGEST_TIME));
        if call.endless {
            let begun = request.timeout(FOREVER).send();
            let begun = tokio::time::timeout(time.unwrap_or(TOTAL_TIME), begun).await;
            return begun.map_err(|_| OutcallError::TimedOut)?.map_err(|error| failed(&error));
        }
        if let Some(time) = time {
            request = request.timeout(time);
        }
        request.send().await.map_err(|error| failed(&error))
    }
}

/// Same scheme, host and port.
fn has_origin_of(url: &str, base: &str) -> bool {
    let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
    origin(url).is_some_and(|own| origin(base) == Some(own))
}

fn with_body(request: reqwest::RequestBuilder, body: Body<'_>) -> Result<reqwest::RequestBuilder, OutcallError> {
    let typed = |mime: &str| (http::header::CONTENT_TYPE, mime.to_owned());
    let (name, mime, body) = match body {
        Body::Empty => return Ok(request),
        Body::Json(json) => {
            let (name, mime) = typed("application/json");
            (name, mime, reqwest::Body::from(json.to_owned()))
        }
        Body::Form(fields) => {
            let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
            let (name, mime) = typed("application/x-www-form-urlencoded");
            (name, mime, reqwest::Body::from(text))
        }
        Body::Bytes { mime, bytes } => {
            let (name, mime) = typed(mime);
            (name, mime, reqwest::Body::from(bytes))
        }
        Body::Stream { mime, length, body } => {
            let request = match length {
                Some(length) => request.header(http::header::CONTENT_LENGTH, length),
                None => request,
            };
            let (name, mime) = typed(mime);
            return Ok(request.header(name, mime).body(reqwest::Body::wrap_stream(body)));
        }
        Body::Multipart(parts) => return Ok(request.multipart(form_of(parts)?)),
    };
    Ok(request.header(name, mime).body(body))
}

fn form_of(parts: Vec<Part<'_>>) -> Result<reqwest::multipart::Form, OutcallError> {
    let mut form = reqwest::multipart::Form::new();
    for Part { name, value } in parts {
        form = match value {
            PartValue::Text(text) => form.text(name.to_owned(), text.to_owned()),
            PartValue::File { filename, mime, length, body } => {
                let body = reqwest::Body::wrap_stream(body);
                let part = match length {
                    Some(length) => reqwest::multipart::Part::stream_with_length(body, length),
                    None => reqwest::multipart::Part::stream(body),
                };
                let part = part.file_name(plain_text(filename)).mime_str(mime);
                let bad = |_| OutcallError::NotSent(format!("{mime:?} is not a media type"));
                form.part(name.to_owned(), part.map_err(bad)?)
            }
        };
    }
    Ok(form)
}

/// A name that others chose, without characters that could end a header line.
fn plain_text(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

fn headers_of(response: &reqwest::Response) -> Vec<(String, String)> {
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    response.headers().iter().filter_map(text).collect()
}

fn failed(error: &reqwest::Error) -> OutcallError {
    let refused = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source())
        .any(|e| e.downcast_ref::<OutcallError>() == Some(&OutcallError::Refused));
    match () {
        () if refused => OutcallError::Refused,
        // Building the request and connecting come before its first byte.
        () if error.is_connect() || error.is_builder() => OutcallError::NotSent(plain(error)),
        () if error.is_timeout() => OutcallError::TimedOut,
        () => OutcallError::Failed(plain(error)),
    }
}

impl Outcall for GuardedClient {
    fn check(&self, url: &str) -> Result<(), OutcallError> {
        self.guard.check(url).map(drop)
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let (max_bytes, cut) = (call.max_bytes, call.cut);
            let mut response = self.send(call).await?;
            let (status, headers) = (response.status().as_u16(), headers_of(&response));
            let mut body = Vec::new();
            loop {
                match response.chunk().await {
                    Ok(None) => break,
                    Ok(Some(chunk)) if body.len() + chunk.len() <= max_bytes => body.extend_from_slice(&chunk),
                    Ok(Some(_)) | Err(_) if cut => break,
                    Ok(Some(_)) => return Err(OutcallError::TooLarge(max_bytes)),
                    Err(error) => return Err(failed(&error)),
                }
            }
            Ok(HttpAnswer { status, headers, body })
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(async move {
            let max_bytes = call.max_bytes;
            let response = self.send(call).await?;
            let (status, headers) = (response.status().as_u16(), headers_of(&response));
            if response.content_length().is_some_and(|length| length > max_bytes as u64) {
                return Err(OutcallError::TooLarge(max_bytes));
            }
            let pieces = response.bytes_stream();
            let bounded = pieces.scan(max_bytes, |left, piece| {
                let piece = piece.map_err(|error| std::io::Error::other(failed(&error))).and_then(|piece| {
                    *left = left.checked_sub(piece.len()).ok_or_else(|| {
                        std::io::Error::new(std::io::ErrorKind::FileTooLarge, "the file is larger than allowed")
                    })?;
                    Ok(piece)
                });
                std::future::ready(Some(piece))
            });
            Ok(OpenAnswer { status, headers, body: Box::pin(bounded) })
        })
    }

    fn socket<'a>(&'a self, dial: Dial<'a>) -> BoxFuture<'a, Result<Box<dyn Socket>, OutcallError>> {
        Box::pin(self.dial(dial))
    }
}

/// The error without the URL, which may contain a capability.
fn plain(error: &reqwest::Error) -> String {
    let kind = match () {
        () if error.is_connect() => "the connection failed",
        () if error.is_body() || error.is_decode() => "the response body was incomplete",
        () => "the request failed",
    };
    kind.to_owned()
}
