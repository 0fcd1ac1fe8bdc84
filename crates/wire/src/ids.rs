//! Ids as types, so that they are not mixed up.
//!
//! On the wire and in the store each is its plain value: a number, or a text. Only an [`EventId`] is `ev-17` on the wire.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number before the first one: "none", or "from the beginning".
            pub const NONE: Self = Self(0);

            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }

            pub fn is_none(self) -> bool {
                self == Self::NONE
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u64 {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )+};
}

numbers! {
    /// An instance of a tenant, or an agent that has no gateway: both are drawn from one sequence.
    InstanceNo;
    /// A row in the ledger of one instance.
    Seq;
    /// A message in the inbox of one agent.
    InboxSeq;
    /// One start of one server process. Never reused.
    DeskNo;
    /// One session of a gateway. Given by the store and never reused, so that what an old session says can be told from
    /// what the present one says.
    SessionNo;
}

/// An event that was accepted: `ev-17` for people and in JSON. `17` is read as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ev-{}", self.0)
    }
}

impl Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_str(Text)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not an event id such as ev-17")))
    }
}

impl From<u64> for EventId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<EventId> for u64 {
    fn from(id: EventId) -> Self {
        id.0
    }
}

impl EventId {
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// With or without `ev-`.
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix("ev-").unwrap_or(text).parse().ok().map(Self)
    }
}

/// Reads a text without a `String` in between.
struct Text;

impl serde::de::Visitor<'_> for Text {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(Text).map(Self)
            }
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(Arc::default())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<&String> for $name {
            fn from(text: &String) -> Self {
                Self(text.as_str().into())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, other: &String) -> bool {
                self.as_str() == other
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, other: &$name) -> bool {
                self == other.as_str()
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, other: &$name) -> bool {
                *self == other.as_str()
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                self.as_str() == other.as_str()
            }
        }
    )+};
}

texts! {
    TenantId;
    GatewayId;
    /// The name of an instance or agent, unique in its tenant. Its number is [`InstanceNo`].
    InstanceId;
    /// A chat of a platform. It names a chat only together with the platform and the bot.
    ChatId;
    /// A bot of a platform, as the platform names it.
    BotId;
    /// A person or bot of a platform, as the platform names it.
    UserId;
    /// A message of a chat. Platforms give them again in other chats.
    MessageId;
    /// A job of an instance, as its agent names it; that of a planned wake is made by the server.
    JobId;
    /// The name of a conversation, as gateways compute it. The server makes some of its own: for alarms and plain answers.
    SessionKey;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_values_in_json() {
        assert_eq!(serde_json::to_string(&(Seq(7), TenantId::from("acme"))).unwrap(), r#"[7,"acme"]"#);
        let (seq, tenant): (Seq, TenantId) = serde_json::from_str(r#"[7,"acme"]"#).unwrap();
        assert_eq!((seq.next(), tenant.as_str()), (Seq(8), "acme"));
    }

    #[test]
    fn an_event_is_named_for_people() {
        assert_eq!(EventId(17).to_string(), "ev-17");
        assert_eq!((EventId::parse("ev-17"), EventId::parse("17")), (Some(EventId(17)), Some(EventId(17))));
        assert_eq!((EventId::parse("ev-"), EventId::parse("ev-x")), (None, None));
        assert_eq!(serde_json::to_string(&EventId(17)).unwrap(), r#""ev-17""#);
        assert_eq!(serde_json::from_str::<EventId>(r#""ev-17""#).unwrap(), EventId(17));
        assert!(serde_json::from_str::<EventId>(r#""ev-x""#).is_err());
    }
}
