//! The protocol of Frontdesk: frames, bodies, ids, tokens, codes.
//!
//! Data and pure functions. No I/O, no clock, no other member of the workspace.

pub mod action;
pub mod agents;
pub mod api;
pub mod code;
pub mod cron;
pub mod descriptor;
pub mod event;
pub mod frame;
pub mod ids;
pub mod lines;
pub mod secret;
pub mod session_key;
pub mod sse;
pub mod token;

pub use action::{Act, Action, ActionResult, ChatInfo};
pub use code::{Close, Code};
pub use descriptor::Descriptor;
pub use event::{MessageEvent, Source};
pub use frame::{DeskFrame, GatewayFrame};
pub use ids::{
    BotId, ChatId, DeskNo, EventId, GatewayId, InboxSeq, InstanceId, InstanceNo, JobId, MessageId, Seq, SessionKey,
    SessionNo, TenantId, UserId,
};
pub use secret::Secret;
pub use session_key::{build_session_key, session_aliases, session_names, turn_names};
