//! The fake's REST as the client that the server calls vendors with. There are no sockets, so a paused clock can jump over
//! waits.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use serde_json::Value;

use super::answer::{Response, Transport};
use super::{FakeDiscord, RestRequest};

/// As the real client has it.
const TIME_LIMIT: Duration = Duration::from_secs(15);

pub struct Direct {
    pub fake: FakeDiscord,
    pub env: Arc<dyn Env>,
    /// Of the way there, and of the way back.
    pub latency: Duration,
}

impl Direct {
    async fn answer(&self, call: Call<'_>) -> Result<HttpAnswer, OutcallError> {
        let not_sent = |why: &str| OutcallError::NotSent(why.to_owned());
        let (_, path) = call.url.split_once("/api/v10/").ok_or_else(|| not_sent("no such page"))?;
        let body = match call.body {
            Body::Empty => Value::Null,
            Body::Json(json) => serde_json::from_str(json).map_err(|_| not_sent("no JSON"))?,
            _ => return Err(not_sent("only JSON is understood here")),
        };
        let method = match call.method {
            HttpMethod::Get => "GET",
            HttpMethod::Head => "HEAD",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Patch => "PATCH",
            HttpMethod::Delete => "DELETE",
        };
        let given = call.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let authorization = given.map(|(_, value)| (*value).to_owned());
        let request = RestRequest { authorization, ..RestRequest::new(method, path, "", body) };
        tokio::time::sleep(self.latency).await;
        let response = self.fake.handle(self.env.now_ms(), &request);
        tokio::time::sleep(self.latency + Duration::from_millis(response.delay_ms)).await;
        rendered(response)
    }
}

fn rendered(response: Response) -> Result<HttpAnswer, OutcallError> {
    let mut body = if response.status == 204 { Vec::new() } else { response.body.to_string().into_bytes() };
    match response.transport {
        Transport::Whole => {}
        Transport::Html(page) => body = page.into_bytes(),
        Transport::Dropped => return Err(OutcallError::Failed("the connection was closed".into())),
        Transport::Cut => body.truncate(body.len() / 2),
    }
    let headers = response.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    Ok(HttpAnswer { status: response.status, headers, body })
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
