//! Close codes of the relay socket, and the stable codes of results and problems.

use serde::{Deserialize, Serialize};

/// Why the server closes a relay socket. Number and reason are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The newest socket of a gateway wins; this one was replaced.
    Replaced,
    /// The server is stopping; reconnect.
    GoingAway,
    /// A frame above the limit, or too many invalid ones.
    PolicyViolation,
    /// Temporary failure of the server, such as an unavailable store: try again later; never `unauthorized`.
    TryLater,
    Unauthorized,
    Expired,
    /// A hello for a platform or bot that this tenant may not use.
    ForeignPlatform,
    /// No pongs and no acks; its rows go to the next socket.
    Unresponsive,
}

impl Close {
    pub fn code(self) -> u16 {
        match self {
            Self::Replaced => 1000,
            Self::GoingAway => 1001,
            Self::PolicyViolation => 1008,
            Self::Unresponsive => 1011,
            Self::TryLater => 1013,
            Self::Unauthorized | Self::Expired => 4401,
            Self::ForeignPlatform => 4403,
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::Replaced => "replaced by a newer socket of this gateway",
            Self::GoingAway => "the server is restarting",
            Self::PolicyViolation => "too many bad frames, or one over the limit",
            Self::Unresponsive => "no acks and no pongs",
            Self::TryLater => "try again later",
            Self::Unauthorized => "unauthorized",
            Self::Expired => "expired",
            Self::ForeignPlatform => "this tenant has no such platform or bot",
        }
    }
}

/// Stable codes in action results and problem bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    Gone,
    Conflict,
    TooLarge,
    UnsupportedMediaType,
    UnsupportedOp,
    UnknownIdentity,
    EgressDeclined,
    CapabilityUnavailable,
    RateLimited,
    Partial,
    Unknown,
    Unavailable,
    Timeout,
    PlatformFailed,
    UrlRefused,
    Internal,
}

/// All codes.
pub const CODES: [Code; 20] = [
    Code::BadRequest,
    Code::Unauthorized,
    Code::Forbidden,
    Code::NotFound,
    Code::Gone,
    Code::Conflict,
    Code::TooLarge,
    Code::UnsupportedMediaType,
    Code::UnsupportedOp,
    Code::UnknownIdentity,
    Code::EgressDeclined,
    Code::CapabilityUnavailable,
    Code::RateLimited,
    Code::Partial,
    Code::Unknown,
    Code::Unavailable,
    Code::Timeout,
    Code::PlatformFailed,
    Code::UrlRefused,
    Code::Internal,
];

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Unknown codes are read as `Unknown`, so that codes can be added.
impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(CODES.into_iter().find(|code| code.name() == name).unwrap_or(Self::Unknown))
    }
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedOp => "unsupported_op",
            Self::UnknownIdentity => "unknown_identity",
            Self::EgressDeclined => "egress_declined",
            Self::CapabilityUnavailable => "capability_unavailable",
            Self::RateLimited => "rate_limited",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::PlatformFailed => "platform_failed",
            Self::UrlRefused => "url_refused",
            Self::Internal => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_unknown_ones_are_accepted() {
        for code in CODES {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), code);
        }
        assert_eq!(serde_json::from_str::<Code>("\"from_the_future\"").unwrap(), Code::Unknown);
    }
}
