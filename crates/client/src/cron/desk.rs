//! Client of the server's cron API.

use std::time::Duration;

use frontdesk_wire::Secret;
use frontdesk_wire::cron::{ArmedAlarm, ArmedAlarms, CancelAlarm, ProvisionAlarm, Provisioned};

use crate::transport::BoxFuture;

const LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronDeskError {
    #[error("the server refused: {status} {text}")]
    Refused { status: u16, text: String },
    #[error("the server does not respond: {0}")]
    Away(String),
}

impl CronDeskError {
    /// Whether a retry may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }
}

pub trait CronDesk: Send + Sync {
    fn provision(&self, alarm: ProvisionAlarm) -> BoxFuture<'_, Result<Provisioned, CronDeskError>>;
    fn cancel<'a>(&'a self, job_id: &'a str) -> BoxFuture<'a, Result<(), CronDeskError>>;
    fn list(&self) -> BoxFuture<'_, Result<Vec<ArmedAlarm>, CronDeskError>>;
}

/// Over HTTP, with an identity token.
pub struct HttpCronDesk {
    base: String,
    identity: Secret,
    client: reqwest::Client,
}

impl HttpCronDesk {
    pub fn new(base: &str, identity: Secret) -> Result<Self, CronDeskError> {
        #[allow(clippy::disallowed_methods)] // calls only the configured server
        let client = reqwest::Client::builder().timeout(LIMIT).build();
        let client = client.map_err(|error| CronDeskError::Away(error.to_string()))?;
        Ok(Self { base: base.trim_end_matches('/').into(), identity, client })
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, CronDeskError> {
        let away = |error: reqwest::Error| CronDeskError::Away(error.without_url().to_string());
        let response = request.bearer_auth(self.identity.expose()).send().await.map_err(away)?;
        let status = response.status();
        let body = response.bytes().await.map_err(away)?;
        if status.is_success() {
            return Ok(body.to_vec());
        }
        let text = String::from_utf8_lossy(&body).chars().take(500).collect();
        Err(CronDeskError::Refused { status: status.as_u16(), text })
    }

    fn url(&self, call: &str) -> String {
        format!("{}/api/agent-cron/{call}", self.base)
    }
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, CronDeskError> {
    serde_json::from_slice(bytes).map_err(|error| CronDeskError::Away(format!("invalid response: {error}")))
}

impl CronDesk for HttpCronDesk {
    fn provision(&self, alarm: ProvisionAlarm) -> BoxFuture<'_, Result<Provisioned, CronDeskError>> {
        Box::pin(async move { read(&self.ask(self.client.post(self.url("provision")).json(&alarm)).await?) })
    }

    fn cancel<'a>(&'a self, job_id: &'a str) -> BoxFuture<'a, Result<(), CronDeskError>> {
        let body = CancelAlarm { job_id: job_id.into() };
        Box::pin(async move { self.ask(self.client.post(self.url("cancel")).json(&body)).await.map(drop) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ArmedAlarm>, CronDeskError>> {
        Box::pin(async move {
            let listed: ArmedAlarms = read(&self.ask(self.client.get(self.url("list"))).await?)?;
            Ok(listed.armed)
        })
    }
}
