//! The fake as the client that the server calls vendors with. There are no sockets, so a paused clock can jump over waits.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, Outcall, OutcallError};
use serde_json::Value;

use super::answer::{Response, Transport};
use super::server::poll;
use super::{FakeTelegram, Params};

/// As the real client has it.
const TIME_LIMIT: Duration = Duration::from_secs(15);

pub struct Direct {
    pub fake: FakeTelegram,
    pub env: Arc<dyn Env>,
    /// Of the way there, and of the way back.
    pub latency: Duration,
}

impl Direct {
    async fn answer(&self, call: Call<'_>) -> Result<HttpAnswer, OutcallError> {
        let not_sent = |why: &str| OutcallError::NotSent(why.to_owned());
        let path = call.url.split_once("/bot").map(|(_, path)| path);
        let (token, method) = path.and_then(|path| path.split_once('/')).ok_or_else(|| not_sent("no such page"))?;
        let Body::Json(json) = call.body else { return Err(not_sent("only JSON is understood here")) };
        let Ok(Value::Object(params)) = serde_json::from_str(json) else { return Err(not_sent("no JSON object")) };
        let params = Params(params);
        tokio::time::sleep(self.latency).await;
        let response = match method {
            "getUpdates" => poll(&self.fake, || self.env.now_ms(), token, &params).await,
            _ => self.fake.handle(self.env.now_ms(), token, method, &params, &[]),
        };
        tokio::time::sleep(self.latency + Duration::from_millis(response.delay_ms)).await;
        rendered(response)
    }
}

fn rendered(response: Response) -> Result<HttpAnswer, OutcallError> {
    let mut body = response.body.to_string().into_bytes();
    match response.transport {
        Transport::Whole => {}
        Transport::Html(page) => body = page.into_bytes(),
        Transport::Dropped => return Err(OutcallError::Failed("the connection was closed".into())),
        Transport::Cut => body.truncate(body.len() / 2),
    }
    Ok(HttpAnswer { status: response.status, body, ..HttpAnswer::default() })
}

impl Outcall for Direct {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            let limit = call.time.unwrap_or(TIME_LIMIT);
            let answer = tokio::time::timeout(limit, self.answer(call)).await;
            answer.unwrap_or(Err(OutcallError::TimedOut))
        })
    }
}
