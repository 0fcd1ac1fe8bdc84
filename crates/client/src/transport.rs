//! The eight methods of the gateway's transport protocol, plus going idle and dormant.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{Act, Action, ActionResult, ChatId, ChatInfo, Descriptor, MessageEvent, SessionKey};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the server delivers.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    Event(Box<MessageEvent>),
    Forward(PassthroughForward),
    /// Stop the turn of this session.
    Interrupt {
        session_key: SessionKey,
        chat_id: ChatId,
    },
}

/// Called for each delivery, in order. A delivery is acked once the future has returned `true`; otherwise the server keeps
/// it and sends it again.
pub type Handler = Arc<dyn Fn(Inbound) -> BoxFuture<'static, bool> + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    #[error("not connected to the server")]
    NotConnected,
    #[error("the server did not respond in time")]
    Timeout,
    #[error("the server does not accept the id and the secret of this gateway: they are wrong, or were revoked")]
    Revoked,
    #[error("the server closed the connection: {code} {reason}")]
    Closed { code: u16, reason: String },
    #[error("the server URL is not valid: {0}")]
    BadUrl(String),
}

pub trait RelayTransport: Send + Sync {
    fn connect(&self) -> BoxFuture<'_, Result<(), TransportError>>;
    fn disconnect(&self) -> BoxFuture<'_, ()>;
    /// Descriptor of the agent's platform.
    fn handshake(&self) -> BoxFuture<'_, Result<Descriptor, TransportError>>;
    fn set_inbound_handler(&self, handler: Handler);
    fn send_outbound(&self, action: Action) -> BoxFuture<'_, Result<ActionResult, TransportError>>;
    fn send_interrupt<'a>(
        &'a self,
        session_key: &'a str,
        reason: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), TransportError>>;
    /// Asks the server to buffer messages; true once it has confirmed.
    fn go_idle(&self) -> BoxFuture<'_, bool>;
    /// Goes idle, closes the socket, and connects again only when woken.
    fn go_dormant(&self) -> BoxFuture<'_, bool>;

    fn get_chat_info<'a>(&'a self, chat_id: &'a str) -> BoxFuture<'a, Result<ChatInfo, TransportError>> {
        let action = Act::GetChatInfo { chat_id: chat_id.into() }.into();
        Box::pin(async move { Ok(self.send_outbound(action).await?.chat_info.unwrap_or_default()) })
    }

    /// Uses a capability that the server stores for this session; the agent never sees it.
    fn send_follow_up<'a>(
        &'a self,
        session_key: &'a str,
        kind: &'a str,
        content: &'a str,
    ) -> BoxFuture<'a, Result<ActionResult, TransportError>> {
        let act = Act::FollowUp { session_key: session_key.into(), kind: kind.into(), content: content.into() };
        self.send_outbound(act.into())
    }
}
