//! Sockets to vendors, with the same rules as calls: no private address unless the operator configured it, and the
//! connection goes to the address that was checked.

use std::net::SocketAddr;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Dial, OutcallError, Socket, SocketMessage};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_websockets::{ClientBuilder, Connector, Limits, MaybeTlsStream, Message, WebSocketStream};
use url::Host;

use super::guard::Guard;
use super::{CONNECT_TIME, GuardedClient, TOTAL_TIME, has_origin_of};

impl GuardedClient {
    pub(super) async fn dial(&self, dial: Dial<'_>) -> Result<Box<dyn Socket>, OutcallError> {
        let opening = tokio::time::timeout(TOTAL_TIME, self.open_socket(dial));
        opening.await.unwrap_or(Err(OutcallError::TimedOut))
    }

    async fn open_socket(&self, dial: Dial<'_>) -> Result<Box<dyn Socket>, OutcallError> {
        let (text, is_secure) = as_http(dial.url)?;
        let is_trusted = dial.trusted.is_some_and(|base| has_origin_of(&text, base));
        let url = if is_trusted { Guard::parse(&text)? } else { self.guard.check(&text)? };
        let port = url.port_or_known_default().unwrap_or(443);
        let (name, found) = match url.host() {
            Some(Host::Ipv4(address)) => (address.to_string(), vec![SocketAddr::from((address, port))]),
            Some(Host::Ipv6(address)) => (address.to_string(), vec![SocketAddr::from((address, port))]),
            Some(Host::Domain(name)) => {
                let found = (self.lookup)(name.to_owned()).await;
                let found = found.map_err(|_| OutcallError::NotSent("the name was not found".into()))?;
                (name.to_owned(), found.into_iter().map(|at| SocketAddr::new(at.ip(), port)).collect())
            }
            None => return Err(OutcallError::Refused),
        };
        let is_any = is_trusted || self.guard.admits_name(&name);
        let admitted: Vec<SocketAddr> =
            found.into_iter().filter(|at| is_any || self.guard.admits_address(at.ip())).collect();
        if admitted.is_empty() {
            return Err(OutcallError::Refused);
        }
        let stream = connect(&admitted).await?;
        let connector = match is_secure {
            true => Connector::new().map_err(|error| OutcallError::NotSent(format!("TLS: {error}")))?,
            false => Connector::Plain,
        };
        let stream = connector.wrap(&name, stream).await;
        let stream = stream.map_err(|_| OutcallError::NotSent("the TLS handshake failed".into()))?;
        let uri = http::Uri::try_from(dial.url).map_err(|error| OutcallError::BadUrl(error.to_string()))?;
        let builder = ClientBuilder::from_uri(uri).limits(Limits::default().max_payload_len(Some(dial.max_bytes)));
        let refused = |_| OutcallError::Failed("the WebSocket handshake was refused".into());
        let (stream, _) = builder.connect_on(stream).await.map_err(refused)?;
        Ok(Box::new(OpenSocket(stream)))
    }
}

/// The same address with the scheme that the guard expects.
fn as_http(url: &str) -> Result<(String, bool), OutcallError> {
    if let Some(rest) = url.strip_prefix("wss://") {
        return Ok((format!("https://{rest}"), true));
    }
    match url.strip_prefix("ws://") {
        Some(rest) => Ok((format!("http://{rest}"), false)),
        None => Err(OutcallError::BadUrl("the scheme must be ws or wss".into())),
    }
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, OutcallError> {
    let mut why = OutcallError::TimedOut;
    for address in addresses {
        match tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true); // only slower without it
                return Ok(stream);
            }
            Ok(Err(_)) => why = OutcallError::NotSent("the connection failed".into()),
            Err(_) => why = OutcallError::NotSent("the connection took too long".into()),
        }
    }
    Err(why)
}

struct OpenSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket for OpenSocket {
    fn next(&mut self) -> BoxFuture<'_, Result<SocketMessage, String>> {
        Box::pin(async move {
            let message = match self.0.next().await {
                None => return Err("the connection was closed".to_owned()),
                Some(Err(error)) => return Err(format!("the connection was lost: {error}")),
                Some(Ok(message)) => message,
            };
            if let Some((code, reason)) = message.as_close() {
                return Err(format!("closed with code {} {reason}", u16::from(code)).trim_end().to_owned());
            }
            Ok(match message.as_text() {
                Some(text) => SocketMessage::Text(text.to_owned()),
                None if message.is_binary() => SocketMessage::Binary(message.into_payload().into()),
                None => SocketMessage::Alive,
            })
        })
    }

    fn send(&mut self, message: SocketMessage) -> BoxFuture<'_, Result<(), String>> {
        let message = match message {
            SocketMessage::Text(text) => Message::text(text),
            SocketMessage::Binary(bytes) => Message::binary(bytes),
            SocketMessage::Alive => Message::ping(""),
        };
        Box::pin(async move { self.0.send(message).await.map_err(|error| format!("the connection was lost: {error}")) })
    }
}
