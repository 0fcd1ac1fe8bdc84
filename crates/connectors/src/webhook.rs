//! Webhook connector: posts messages as JSON to the URL of an agent, signed if a secret is configured.
//!
//! All requests use the guarded client. Redirects are not followed: any status other than 2xx is a failure. Faults
//! contain neither the URL nor the secrets.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use frontdesk_core::Env;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_wire::Secret;
use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentReply, AgentStatus, ConnectorSpec, DeliveryPayload, DeliveryReceipt, Fault,
    Promise, WakeOpts, WakeReceipt, When,
};
use serde::Serialize;
use serde_json::Value;

use crate::address::{note_dropped, only, session_of};

const DEFAULT_TIME_MS: u64 = 5_000;
const MOST_TIME_MS: u64 = 30_000;
/// A longer response is cut off. It then fails to parse, and the receipt contains only our own values.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
const AUTHORIZATION_MAX_BYTES: usize = 8 * 1024;
/// Limits for values of the response that are copied into receipts.
const WORD_MAX_CHARS: usize = 256;
const WARNINGS_MAX: usize = 16;

#[derive(Serialize)]
struct Delivery<'a> {
    agent_id: &'a str,
    #[serde(flatten)]
    payload: &'a DeliveryPayload,
}

/// Body for a wake URL.
#[derive(Serialize)]
struct Wake<'a> {
    agent_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
}

/// Body for the delivery URL of an agent without a wake URL.
#[derive(Serialize)]
struct Degraded<'a> {
    agent_id: &'a str,
    kind: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
}

pub struct HttpWebhook {
    agent_id: String,
    url: String,
    wake_url: Option<String>,
    status_url: Option<String>,
    authorization: Option<Secret>,
    key: Option<hmac::Key>,
    time: Duration,
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
}

impl HttpWebhook {
    /// Opens a `webhook` specification; refuses others and invalid values.
    pub fn open(
        agent_id: &str,
        spec: &ConnectorSpec,
        env: Arc<dyn Env>,
        outcall: Arc<dyn Outcall>,
    ) -> Result<Self, Fault> {
        let ConnectorSpec::Webhook { url, wake_url, status_url, authorization, hmac_secret, timeout_ms } = spec else {
            return Err(Fault::invalid(format!("expected a webhook connector, got {}", spec.name())));
        };
        let urls = [("url", Some(url)), ("wake_url", wake_url.as_ref()), ("status_url", status_url.as_ref())];
        for (field, url) in urls {
            let Some(url) = url else { continue };
            outcall.check(url).map_err(|error| Fault::invalid(format!("{field}: {error}")).with("field", field))?;
        }
        let sendable = |text: &String| {
            let plain = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
            !text.is_empty() && text.len() <= AUTHORIZATION_MAX_BYTES && text.bytes().all(plain)
        };
        if authorization.as_ref().is_some_and(|text| !sendable(text)) {
            return Err(Fault::invalid("authorization: not a valid header value").with("field", "authorization"));
        }
        if hmac_secret.as_ref().is_some_and(String::is_empty) {
            return Err(Fault::invalid("hmac_secret: must not be empty").with("field", "hmac_secret"));
        }
        let time_ms = timeout_ms.unwrap_or(DEFAULT_TIME_MS);
        if !(1..=MOST_TIME_MS).contains(&time_ms) {
            let text = format!("timeout_ms: must be 1 to {MOST_TIME_MS}");
            return Err(Fault::invalid(text).with("field", "timeout_ms"));
        }
        Ok(Self {
            agent_id: agent_id.into(),
            url: url.clone(),
            wake_url: wake_url.clone(),
            status_url: status_url.clone(),
            authorization: authorization.as_ref().map(Secret::new),
            key: hmac_secret.as_ref().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())),
            time: Duration::from_millis(time_ms),
            env,
            outcall,
        })
    }

    /// Returns the response if its status is 2xx, otherwise a fault.
    async fn call(&self, url: &str, json: Option<&str>) -> Result<HttpAnswer, Fault> {
        let signature = match (&self.key, json) {
            (Some(key), Some(body)) => Some(format!("sha256={}", hex::encode(hmac::sign(key, body.as_bytes())))),
            _ => None,
        };
        let authorization = self.authorization.as_ref().map(|text| ("Authorization", text.expose()));
        let signature = signature.as_deref().map(|text| ("X-Signature", text));
        let headers: Vec<(&str, &str)> = authorization.into_iter().chain(signature).collect();
        let call = match json {
            Some(json) => Call::post(url, json, ANSWER_MAX_BYTES),
            None => Call::get(url, ANSWER_MAX_BYTES),
        };
        let call = Call { headers: &headers, time: Some(self.time), cut: true, ..call };
        let failed = |kind: &str, text: String| Fault::delivery_failed(&self.agent_id, kind, text);
        match self.outcall.call(call).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(answer),
            Ok(HttpAnswer { status, .. }) => {
                let aside = if (300..400).contains(&status) { ", and redirects are not followed" } else { "" };
                Err(failed("http_status", format!("the webhook returned status {status}{aside}"))
                    .with("http_status", status))
            }
            Err(OutcallError::TimedOut) => {
                let limit_ms = u64::try_from(self.time.as_millis()).unwrap_or(MOST_TIME_MS);
                let text = format!("the webhook did not respond within {limit_ms} ms");
                Err(failed("timeout", text).with("timeout_ms", limit_ms))
            }
            Err(error @ (OutcallError::Refused | OutcallError::BadUrl(_))) => {
                Err(failed("client_validation", error.to_string()))
            }
            Err(error) => Err(failed("network", error.to_string())),
        }
    }

    async fn post(&self, url: &str, body: &impl Serialize) -> Result<Value, Fault> {
        let body = serde_json::to_string(body).map_err(|error| {
            let text = format!("encoding the message as JSON failed: {error}");
            Fault::delivery_failed(&self.agent_id, "client_validation", text)
        })?;
        let answer = self.call(url, Some(&body)).await?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
    }
}

impl AgentConnector for HttpWebhook {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(async { Ok(only(&self.agent_id)) })
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let answer = self.post(&self.url, &Delivery { agent_id: &self.agent_id, payload }).await?;
            let receipt = DeliveryReceipt {
                delivered_at: time_in(&answer, "delivered_at").unwrap_or_else(|| self.env.now_ms()),
                delivery_id: ["delivery_id", "id", "ts"].into_iter().find_map(|name| word_in(&answer, name)),
                session_id: word_in(&answer, "session_id"),
                delivery_skipped: answer["delivery_skipped"] == true,
                warnings: warnings_in(&answer),
            };
            Ok(note_dropped(receipt, session))
        })
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let session_id = opts.session_id.as_deref().or(session);
            let (agent_id, context, when) = (self.agent_id.as_str(), opts.context.as_deref(), opts.when);
            let (answer, aside) = if let Some(url) = &self.wake_url {
                let body = Wake { agent_id, context, session_id, when };
                (self.post(url, &body).await?, "the wake URL responded, but did not confirm that the agent is awake")
            } else {
                let content = context.unwrap_or_default();
                let body = Degraded { agent_id, kind: "wake", content, session_id, when };
                (self.post(&self.url, &body).await?, "no wake URL: the context was delivered, the agent was not woken")
            };
            // Only the response of a wake URL can confirm a wake.
            let woken = self.wake_url.is_some() && answer["woken"] == true;
            let mut warnings = warnings_in(&answer);
            if !woken {
                warnings.push(aside.into());
            }
            Ok(WakeReceipt {
                woken_at: time_in(&answer, "woken_at").unwrap_or_else(|| self.env.now_ms()),
                woken,
                session_id: word_in(&answer, "session_id"),
                warnings,
                scheduled_for: time_in(&answer, "scheduled_for"),
            })
        })
    }

    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async {
            match &self.status_url {
                Some(url) => self.call(url, None).await.map(drop),
                None => Ok(()),
            }
        })
    }

    fn request_response<'a>(&'a self, _: &'a str, _: &'a DeliveryPayload, _: u64) -> Promise<'a, AgentReply> {
        Box::pin(async { Err(Fault::not_implemented("webhook", "request_response")) })
    }

    fn agent_status<'a>(&'a self, agent_id: &'a str) -> Promise<'a, AgentStatus> {
        Box::pin(async move {
            let known = session_of(&self.agent_id, agent_id).is_ok();
            let Some(url) = self.status_url.as_ref().filter(|_| known) else { return Ok(AgentStatus::Unknown) };
            let said: Value = match self.call(url, None).await {
                Ok(answer) => serde_json::from_slice(&answer.body).unwrap_or_default(),
                Err(_) => return Ok(AgentStatus::Unknown), // not reachable
            };
            Ok(serde_json::from_value(said["status"].clone()).unwrap_or(AgentStatus::Unknown))
        })
    }
}

fn time_in(answer: &Value, name: &str) -> Option<u64> {
    let whole = answer[name].as_u64();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range; fractions of a ms are dropped
    whole.or_else(|| answer[name].as_f64().filter(|ms| (0.0..9e15).contains(ms)).map(|ms| ms as u64))
}

fn word_in(answer: &Value, name: &str) -> Option<String> {
    let text = answer[name].as_str()?;
    (!text.is_empty()).then(|| text.chars().take(WORD_MAX_CHARS).collect())
}

fn warnings_in(answer: &Value) -> Vec<String> {
    let all = answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    all.take(WARNINGS_MAX).map(|text| text.chars().take(WORD_MAX_CHARS).collect()).collect()
}
