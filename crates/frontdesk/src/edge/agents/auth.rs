//! Authentication of the agents API: a token in the header, or in the path of a capability URL. The token determines
//! tenant and scope; the name that a caller gives is only attribution.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Request, Uri, header};
use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::directory::facts::Scope;
use frontdesk_wire::agents::{Class, Fault};
use frontdesk_wire::{InstanceId, TenantId};

use super::Refused;
use crate::edge::App;
use crate::edge::auth::bearer;
use crate::edge::body_memory::BodyReservation;

/// Longer caller names are ignored. They are shown to users.
const CALLER_MAX_CHARS: usize = 256;

/// The holder of a token of scope agents or operator.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) tenant: TenantId,
    pub(crate) operator: bool,
    pub(crate) token_id: String,
    /// What the caller calls itself: for attribution, never for access.
    pub(crate) caller: Option<String>,
    /// The agent to which the token is bound, if any.
    pub(crate) bound: Option<InstanceId>,
}

impl Api {
    pub(crate) fn as_caller(&self) -> AgentsCaller<'_> {
        let (caller, bound) = (self.caller.as_deref(), self.bound.as_ref());
        AgentsCaller { tenant: &self.tenant, operator: self.operator, caller, bound }
    }
}

impl FromRequestParts<App> for Api {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let in_path = parts.extensions.get::<Capability>().map(|it| it.0.as_str());
        let in_header = parts.headers.get(header::AUTHORIZATION).map(|_| bearer(&parts.headers).unwrap_or_default());
        let token = match (in_path, in_header) {
            (Some(path), Some(header)) if path != header => {
                let text = "the token in the path differs from the one in the Authorization header";
                return Err(Fault::invalid(text).into());
            }
            (Some(token), _) | (None, Some(token)) => token,
            (None, None) => return Err(unauthorized()),
        };
        let found = [Scope::Agents, Scope::Operator]
            .into_iter()
            .find_map(|scope| app.desk.directory().prove_token(token, scope));
        let token = found.ok_or_else(unauthorized)?;
        if !app.limits.admit(&token.id, app.desk.env().steady_ms()) {
            let text = "too many requests with this token; try again later";
            return Err(Fault::new(Class::RateLimitedError, text).into());
        }
        BodyReservation::prove(parts, &token.tenant);
        let caller = parts.headers.get(app.limits.caller_header()).and_then(|name| name.to_str().ok());
        let caller = caller.map(str::trim).filter(|it| !it.is_empty() && it.chars().count() <= CALLER_MAX_CHARS);
        let bound = token.instance.filter(|_| token.scope == Scope::Agents);
        let caller = bound.as_deref().or(caller).map(str::to_owned);
        let who =
            Self { operator: token.scope == Scope::Operator, tenant: token.tenant, token_id: token.id, caller, bound };
        // All values are checked, because it is unknown which one a proxy uses.
        for name in parts.headers.get_all(app.limits.caller_header()) {
            let name = String::from_utf8_lossy(name.as_bytes());
            who.as_caller().check_name(&format!("the header {}", app.limits.caller_header()), Some(name.trim()))?;
        }
        Ok(who)
    }
}

fn unauthorized() -> Refused {
    let text = "a token of scope agents or operator is required: frontdesk token create --tenant T --scope agents";
    Fault::new(Class::UnauthorizedError, text).into()
}

/// The token of a capability URL. No `Debug`, so that it is never logged.
#[derive(Clone)]
struct Capability(String);

/// Rewrites `/k/{token}/v1/...` to `/v1/...` and stores the token separately, so that it appears in no log or metric.
pub(crate) fn take_capability<B>(request: &mut Request<B>) {
    let Some(rest) = request.uri().path().strip_prefix("/k/") else { return };
    let Some((token, rest)) = rest.split_once('/') else { return };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let (token, path) = (token.to_owned(), format!("/{rest}{query}"));
    if !["v1/", "mcp"].iter().any(|door| rest.starts_with(door)) {
        return;
    }
    if let Ok(uri) = path.parse::<Uri>() {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(Capability(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_url_becomes_the_plain_path_without_the_token() {
        for (path, plain) in [
            ("/k/tok_1/v1/agents/a%2540b/wake?x=1", Some("/v1/agents/a%2540b/wake?x=1")),
            ("/k/tok_1/mcp", Some("/mcp")),
            ("/k/tok_1/admin/v1/tenants", None),
            ("/k/tok_1", None),
            ("/k//v1/health", Some("/v1/health")),
            ("/v1/health", None),
        ] {
            let mut request = Request::builder().uri(path).body(()).unwrap();
            take_capability(&mut request);
            assert_eq!(request.uri().to_string(), plain.unwrap_or(path), "{path}");
            assert_eq!(request.extensions().get::<Capability>().is_some(), plain.is_some(), "{path}");
        }
    }
}
