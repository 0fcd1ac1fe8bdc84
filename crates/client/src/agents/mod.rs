//! The agents plane of a desk, over HTTP: its agents, its skills and its data as if they were here.
//!
//! [`AgentsClient`] implements the three contracts, so whatever is written against the traits works with a
//! desk. A refusal comes back as the fault that the desk gave, class and fields included.

mod connector;
mod http;
mod sse;
mod stores;
mod stream;

pub use http::AgentsClient;
pub use sse::{Event, Events, TooLong};
pub use stream::{InboxEvent, InboxStream};
