//! The agents API of a server over HTTP: agents, skills and data.
//!
//! [`AgentsClient`] implements the three contracts, so code written against the traits works with a server. Refusals
//! come back as the faults that the server sent, with class and fields.

mod connector;
mod http;
mod stores;
mod stream;

pub use frontdesk_wire::sse::{Event, Events, TooLong};
pub use http::AgentsClient;
pub(crate) use http::{encoded, segment};
pub use stream::{InboxEvent, InboxStream};
