//! Bodies of the agents API: raw bytes for signature checks, then JSON. The content type is not checked, because some
//! clients cannot set it.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use frontdesk_wire::agents::{Class, Fault};
use serde::de::DeserializeOwned;

use super::Refused;
use crate::edge::App;

/// Enough for a message of 1 MiB with JSON escapes.
const BODY_MAX_BYTES: usize = 4 << 20;

pub(crate) struct Raw(pub(crate) Bytes);

impl FromRequest<App> for Raw {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &App) -> Result<Self, Refused> {
        let body = crate::edge::body::whole(request, BODY_MAX_BYTES).await;
        body.map(Self).map_err(|refusal| {
            let class = match refusal.code {
                frontdesk_wire::Code::TooLarge => Class::TooLargeError,
                frontdesk_wire::Code::Unavailable => Class::UnavailableError,
                _ => Class::ValidationError,
            };
            Fault::new(class, refusal.text).into()
        })
    }
}

impl Raw {
    /// An empty body counts as an empty object. An array is refused, because serde would read its entries as fields in
    /// order.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.0.is_empty() { b"{}" } else { &self.0 };
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Fault::invalid("the request body must be a JSON object"));
        }
        let fit = serde_json::from_slice(bytes);
        fit.map_err(|error| Fault::invalid(format!("invalid request body: {}", without_value(&error.to_string()))))
    }
}

/// The error without the wrong value, which may be a misplaced secret.
fn without_value(message: &str) -> String {
    let shows = ["invalid type: ", "invalid value: ", "unknown variant "].iter().any(|it| message.starts_with(it));
    match (message.find(['"', '`']), message.rfind(", expected")) {
        (Some(value), Some(rest)) if shows && value < rest => {
            format!("{}{}", message[..value].trim_end(), &message[rest..])
        }
        _ => message.to_owned(),
    }
}

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refused> {
        Ok(Self(Raw::from_request(request, app).await?.json()?))
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_wire::agents::{AgentPut, SkillPut};

    use super::*;

    #[test]
    fn an_array_is_not_accepted_as_an_object() {
        for body in [r#"["a skill"]"#, " [1]", "null", r#""a skill""#, "7", " "] {
            let fault = Raw(Bytes::from_static(body.as_bytes())).json::<SkillPut>().err().map(|it| it.message);
            assert_eq!(fault.as_deref(), Some("the request body must be a JSON object"), "{body}");
        }
        let put = Raw(Bytes::from_static(b" \r\n\t{\"source\":\"[\"}")).json::<SkillPut>().ok();
        assert_eq!(put.map(|it| it.source).as_deref(), Some("["));
    }

    #[test]
    fn an_invalid_body_is_explained_without_its_value() {
        for (body, expected) in [
            (r#"{"connectors":"s3cr3t\", expected"}"#, "invalid type: string, expected a sequence at line 1 column 34"),
            (r#"{"webhook_secret":5}"#, "invalid type: integer, expected a string at line 1 column 19"),
            (r#"{"webhook_secret":["s3cr3t"]}"#, "invalid type: sequence, expected a string at line 1 column 18"),
            (r#"{"connectors":[{"type":"relay"}]}"#, "missing field `instance` at line 1 column 32"),
            ("{", "EOF while parsing an object at line 1 column 1"),
        ] {
            let fault = Raw(Bytes::from_static(body.as_bytes())).json::<AgentPut>().err().map(|it| it.message);
            assert_eq!(fault, Some(format!("invalid request body: {expected}")));
        }
        let odd = Raw(Bytes::from_static(br#"{"connectors":[{"type":"s3cr3t"}]}"#)).json::<AgentPut>().err();
        let odd = odd.map(|it| it.message).unwrap_or_default();
        assert!(odd.contains("unknown variant, expected one of `relay`") && !odd.contains("s3cr3t"), "{odd}");
    }
}
