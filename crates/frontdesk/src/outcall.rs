//! The guarded way out: https or http, no private address unless allowed, the address pinned at
//! connect, no redirect followed, no proxy, size and time bounded.
//!
//! Every refusal has the same words: which rule said no is nothing that a stranger should learn.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frontdesk_core::port::Soon;
use frontdesk_core::port::outcall::{Answer, Call, Outcall, OutcallError};
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

const CONNECT_TIME: Duration = Duration::from_secs(5);
const TOTAL_TIME: Duration = Duration::from_secs(15);
const URL_MAX_BYTES: usize = 2048;
/// Connections that are kept for the next call: a storm of fires to one host should not dial for each.
const IDLE_PER_HOST: usize = 32;
const IDLE_TIME: Duration = Duration::from_secs(10);

/// What the operator lets through although it is private.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    Net(IpNet),
    Host(String),
}

impl Allow {
    pub fn parse(entry: &str) -> Option<Self> {
        if let Ok(net) = entry.parse() {
            return Some(Self::Net(net));
        }
        if let Ok(address) = entry.parse::<IpAddr>() {
            return Some(Self::Net(address.into()));
        }
        let name = entry.trim_end_matches('.').to_ascii_lowercase();
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        plain.then_some(Self::Host(name))
    }
}

struct Guard {
    allow: Vec<Allow>,
}

impl Guard {
    fn admits_address(&self, address: IpAddr) -> bool {
        let real = canonical(address);
        let named = |entry: &Allow| matches!(entry, Allow::Net(net) if net.contains(&real));
        is_public(real) || self.allow.iter().any(named)
    }

    /// A name that the operator allows may resolve to anything.
    fn admits_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.allow.iter().any(|entry| matches!(entry, Allow::Host(host) if *host == name))
    }

    fn check(&self, text: &str) -> Result<Url, OutcallError> {
        if text.len() > URL_MAX_BYTES {
            return Err(OutcallError::BadUrl(format!("over {URL_MAX_BYTES} bytes")));
        }
        let url = Url::parse(text).map_err(|error| OutcallError::BadUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutcallError::BadUrl("only http and https".into()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(OutcallError::Refused);
        }
        // The parser has turned octal, hex and short forms of IPv4 into addresses already.
        let admitted = match url.host() {
            Some(Host::Ipv4(address)) => self.admits_address(address.into()),
            Some(Host::Ipv6(address)) => self.admits_address(address.into()),
            Some(Host::Domain(name)) => self.admits_name(name) || !is_local_name(name),
            None => false,
        };
        if admitted { Ok(url) } else { Err(OutcallError::Refused) }
    }
}

/// Names that mean this machine or this network, whatever a resolver says.
fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || [".localhost", ".local", ".internal"].iter().any(|end| name.ends_with(end))
}

/// The address that is really meant: IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4) is unwrapped.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => v4(high, low),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let special = v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local() // metadata services live here
        || v4.is_broadcast()
        || v4.is_documentation()
        || v4.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // carrier-grade NAT
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    // Global unicast only, without what is carved out of it for documentation and tunnels.
    let s = v6.segments();
    let global = s[0] & 0xe000 == 0x2000;
    let documentation = s[0] == 0x2001 && s[1] == 0x0db8;
    let protocol = s[0] == 0x2001 && s[1] < 0x0200; // Teredo, ORCHID and kin
    global && !documentation && !protocol && s[0] != 0x3fff
}

/// Resolves and keeps only what the guard admits; the connection goes to just these addresses.
struct GuardedResolver(Arc<Guard>);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let any = guard.admits_name(&host);
            let admitted: Vec<SocketAddr> =
                found.into_iter().filter(|at| any || guard.admits_address(at.ip())).collect();
            if admitted.is_empty() {
                return Err(Box::<dyn std::error::Error + Send + Sync>::from(OutcallError::Refused));
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

pub struct GuardedClient {
    guard: Arc<Guard>,
    /// Made at the first call: reading the machine's certificates costs time and memory.
    client: OnceLock<Result<reqwest::Client, String>>,
}

impl GuardedClient {
    pub fn new(allow: &[String]) -> Self {
        let guard = Guard { allow: allow.iter().filter_map(|entry| Allow::parse(entry)).collect() };
        Self { guard: Arc::new(guard), client: OnceLock::new() }
    }

    fn client(&self) -> Result<&reqwest::Client, OutcallError> {
        let made = self.client.get_or_init(|| self.build().map_err(|error| error.to_string()));
        made.as_ref().map_err(|error| OutcallError::Failed(error.clone()))
    }

    fn build(&self) -> reqwest::Result<reqwest::Client> {
        #[allow(clippy::disallowed_methods)] // this is the guarded client that everybody else must use
        reqwest::Client::builder()
            .dns_resolver(Arc::new(GuardedResolver(self.guard.clone())))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIME)
            .timeout(TOTAL_TIME)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .pool_idle_timeout(IDLE_TIME)
            .user_agent(concat!("frontdesk/", env!("CARGO_PKG_VERSION")))
            .build()
    }
}

impl Outcall for GuardedClient {
    fn check(&self, url: &str) -> Result<(), OutcallError> {
        self.guard.check(url).map(drop)
    }

    fn call<'a>(&'a self, call: Call<'a>) -> Soon<'a, Result<Answer, OutcallError>> {
        Box::pin(async move {
            let url = self.guard.check(call.url)?; // the resolver hook is not asked for IP literals
            let failed = |error: reqwest::Error| {
                let refused = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
                    .any(|e| e.downcast_ref::<OutcallError>() == Some(&OutcallError::Refused));
                if refused { OutcallError::Refused } else { OutcallError::Failed(plain(&error)) }
            };
            let mut request = match call.json {
                None => self.client()?.get(url),
                Some(json) => self
                    .client()?
                    .post(url)
                    .header(http::header::CONTENT_TYPE, "application/json")
                    .body(json.to_owned()),
            };
            if let Some(bearer) = call.bearer {
                request = request.bearer_auth(bearer.expose());
            }
            let mut response = request.send().await.map_err(failed)?;
            let status = response.status().as_u16();
            let content_type = response.headers().get(http::header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > call.max_bytes {
                    return Err(OutcallError::TooLarge(call.max_bytes));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Answer { status, content_type, body })
        })
    }
}

/// What went wrong, without the URL: it may carry a capability.
fn plain(error: &reqwest::Error) -> String {
    let kind = match () {
        () if error.is_timeout() => "it took too long",
        () if error.is_connect() => "the connection failed",
        () if error.is_body() || error.is_decode() => "the answer broke off",
        () => "the request failed",
    };
    kind.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> Guard {
        Guard { allow: allow.iter().filter_map(|entry| Allow::parse(entry)).collect() }
    }

    #[test]
    fn private_places_are_refused_in_every_spelling() {
        let guard = guard(&[]);
        for host in [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0177.0.0.1",
            "2130706433",
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fc00::1]",
            "[::7f00:1]",
            "224.0.0.1",
            "255.255.255.255",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "metadata.google.internal",
        ] {
            let url = format!("http://{host}/wake");
            assert_eq!(guard.check(&url).err(), Some(OutcallError::Refused), "{url}");
        }
        assert_eq!(guard.check("http://user:pw@example.com/").err(), Some(OutcallError::Refused));
        for url in
            ["ftp://example.com/", "file:///etc/passwd", "x", "http://", &format!("http://e.com/{}", "a".repeat(3000))]
        {
            assert!(matches!(guard.check(url), Err(OutcallError::BadUrl(_))), "{url}");
        }
        for url in ["https://example.com/wake", "http://93.184.216.34/", "https://[2606:2800:220:1::1]/"] {
            assert!(guard.check(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn the_operator_can_allow_networks_and_names() {
        let guard = guard(&["127.0.0.0/8", "agents.internal", "::1"]);
        for url in [
            "http://127.0.0.1:9/x",
            "http://127.1/",
            "http://agents.internal/",
            "http://[::1]:2/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(guard.check(url).is_ok(), "{url}");
        }
        assert!(guard.check("http://10.0.0.1/").is_err());
        assert!(guard.check("http://other.internal/").is_err());
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_is_refused_before_connecting() {
        let resolver = GuardedResolver(Arc::new(guard(&[])));
        // "localhost" is in every hosts file; the resolver sees only its addresses.
        let found = resolver.resolve("localhost".parse().unwrap()).await;
        assert!(found.is_err());
        let resolver = GuardedResolver(Arc::new(guard(&["127.0.0.0/8", "::1"])));
        assert!(resolver.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
