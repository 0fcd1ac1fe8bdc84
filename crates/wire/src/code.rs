//! Close codes of the relay socket and the stable codes of results and problems.

use serde::{Deserialize, Serialize};

/// Why we close a relay socket. The number and the reason are contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The newest socket of a gateway wins; this one was replaced.
    Replaced,
    /// The server is going down; dial again.
    GoingAway,
    /// A frame over the limit, or too many bad ones.
    PolicyViolation,
    /// Our own fault (a store that is down): try again later, never `unauthorized`.
    TryLater,
    Unauthorized,
    Expired,
    /// A hello for a platform or bot that this tenant may not use.
    ForeignPlatform,
    /// Pongs and acks stayed away; its rows go to the next socket.
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
            Self::GoingAway => "the desk is restarting",
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
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

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
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
