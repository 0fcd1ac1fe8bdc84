//! Refusals. Adapters switch on `class`; `message` is for people.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Kind of a refusal. The names are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is malformed.
    ValidationError,
    UnauthorizedError,
    /// The body is not signed with the agent's webhook secret.
    SignatureError,
    ForbiddenError,
    NotFoundError,
    UnknownAgentError,
    UnsupportedKindError,
    /// This connector does not support the operation.
    NotImplementedError,
    /// The message was not accepted, although the operation is supported.
    DeliveryFailedError,
    TimeoutError,
    ConflictError,
    /// No caller waits for this reply, or not any more.
    GoneError,
    RateLimitedError,
    TooLargeError,
    UnsupportedMediaTypeError,
    MethodNotAllowedError,
    SkillNotFoundError,
    VersionNotFoundError,
    StorageConflictError,
    ApprovalRejectedError,
    DataNotFound,
    UnsupportedFilterError,
    QueryError,
    /// Temporary failure of the server: nothing was accepted, try again later.
    UnavailableError,
    InternalError,
}

const CLASSES: [(Class, &str, u16); 25] = [
    (Class::ValidationError, "ValidationError", 400),
    (Class::UnauthorizedError, "UnauthorizedError", 401),
    (Class::SignatureError, "SignatureError", 401),
    (Class::ForbiddenError, "ForbiddenError", 403),
    (Class::NotFoundError, "NotFoundError", 404),
    (Class::UnknownAgentError, "UnknownAgentError", 404),
    (Class::UnsupportedKindError, "UnsupportedKindError", 422),
    (Class::NotImplementedError, "NotImplementedError", 501),
    (Class::DeliveryFailedError, "DeliveryFailedError", 502),
    (Class::TimeoutError, "TimeoutError", 504),
    (Class::ConflictError, "ConflictError", 409),
    (Class::GoneError, "GoneError", 410),
    (Class::RateLimitedError, "RateLimitedError", 429),
    (Class::TooLargeError, "TooLargeError", 413),
    (Class::UnsupportedMediaTypeError, "UnsupportedMediaTypeError", 415),
    (Class::MethodNotAllowedError, "MethodNotAllowedError", 405),
    (Class::SkillNotFoundError, "SkillNotFoundError", 404),
    (Class::VersionNotFoundError, "VersionNotFoundError", 404),
    (Class::StorageConflictError, "StorageConflictError", 409),
    (Class::ApprovalRejectedError, "ApprovalRejectedError", 403),
    (Class::DataNotFound, "DataNotFound", 404),
    (Class::UnsupportedFilterError, "UnsupportedFilterError", 400),
    (Class::QueryError, "QueryError", 400),
    (Class::UnavailableError, "UnavailableError", 503),
    (Class::InternalError, "InternalError", 500),
];

impl Class {
    fn entry(self) -> (Class, &'static str, u16) {
        CLASSES.into_iter().find(|(class, ..)| *class == self).unwrap_or(CLASSES[CLASSES.len() - 1])
    }

    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// The HTTP status of this class.
    pub fn status(self) -> u16 {
        self.entry().2
    }

    pub fn parse(name: &str) -> Option<Self> {
        CLASSES.into_iter().find(|(_, known, _)| *known == name).map(|(class, ..)| class)
    }

    /// For a response with a status but no class.
    pub fn of_status(status: u16) -> Self {
        CLASSES.into_iter().find(|(.., known)| *known == status).map_or(Self::InternalError, |(class, ..)| class)
    }
}

/// A refusal: on the wire `{"error":{"class":"...","message":"...", ...fields}}`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {message}", class.name())]
pub struct Fault {
    pub class: Class,
    pub message: String,
    pub fields: Map<String, Value>,
}

impl Fault {
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), fields: Map::new() }
    }

    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(field.into(), value.into());
        self
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Class::ValidationError, message)
    }

    pub fn unknown_agent(agent_id: &str) -> Self {
        let shown: String = agent_id.chars().take(80).collect();
        Self::new(Class::UnknownAgentError, format!("agent {shown:?} not found")).with("agent_id", agent_id)
    }

    pub fn not_implemented(connector: &str, method: &str) -> Self {
        Self::new(Class::NotImplementedError, format!("{connector} does not support {method}"))
    }

    /// `cause_kind` is one of network, timeout, `http_status`, `malformed_response`, `client_validation`.
    pub fn delivery_failed(agent_id: &str, cause_kind: &str, message: impl Into<String>) -> Self {
        Self::new(Class::DeliveryFailedError, message).with("agent_id", agent_id).with("cause_kind", cause_kind)
    }

    pub fn skill_not_found(name: &str) -> Self {
        let shown: String = name.chars().take(80).collect();
        Self::new(Class::SkillNotFoundError, format!("skill {shown:?} not found")).with("skill_name", name)
    }

    pub fn version_not_found(name: &str, version: &str) -> Self {
        let text = format!("skill {name:?} has no version {version:?}");
        Self::new(Class::VersionNotFoundError, text).with("skill_name", name).with("version", version)
    }

    pub fn storage_conflict(name: &str, reason: &str) -> Self {
        Self::new(Class::StorageConflictError, format!("skill {name:?} was not stored: {reason}"))
            .with("skill_name", name)
            .with("reason", reason)
    }

    pub fn approval_rejected(name: &str, reason: &str) -> Self {
        Self::new(Class::ApprovalRejectedError, format!("skill {name:?} was not approved: {reason}"))
            .with("skill_name", name)
            .with("reason", reason)
    }

    /// Without the enclosing `error`.
    pub fn as_object(&self) -> Map<String, Value> {
        let mut object = self.fields.clone();
        object.insert("class".into(), self.class.name().into());
        object.insert("message".into(), self.message.clone().into());
        object
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = Map::new();
        body.insert("error".into(), self.as_object().into());
        body.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Body {
            error: Map<String, Value>,
        }
        let mut fields = Body::deserialize(deserializer)?.error;
        let take = |fields: &mut Map<String, Value>, name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(D::Error::custom(format!("error.{name} is missing"))),
        };
        let class = take(&mut fields, "class")?;
        let message = take(&mut fields, "message")?;
        let class = Class::parse(&class).ok_or_else(|| D::Error::custom(format!("unknown class {class:?}")))?;
        Ok(Self { class, message, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_name_and_reads_back() {
        let mut names: Vec<&str> = CLASSES.iter().map(|(_, name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CLASSES.len());
        for (class, name, status) in CLASSES {
            assert_eq!((class.name(), class.status(), Class::parse(name)), (name, status, Some(class)));
            assert_eq!(Class::of_status(status).status(), status);
            let fault = Fault::new(class, "why").with("skill_name", "x");
            let text = serde_json::to_string(&fault).unwrap();
            assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault, "{text}");
        }
        assert_eq!(Class::of_status(418), Class::InternalError);
        for bad in ["{}", r#"{"error":"x"}"#, r#"{"error":{"class":"Nope","message":""}}"#] {
            assert!(serde_json::from_str::<Fault>(bad).is_err(), "{bad}");
        }
    }
}
