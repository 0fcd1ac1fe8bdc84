//! The guarded way out: https or http, no private address unless allowed, the address pinned at
//! connect, no redirect followed, no proxy, size and time bounded.
//!
//! Every refusal has the same words: which rule said no is nothing that a stranger should learn.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Answer, Call, Outcall, OutcallError};
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

const CONNECT_TIME: Duration = Duration::from_secs(5);
const TOTAL_TIME: Duration = Duration::from_secs(15);
/// What a call may ask for at most.
const LONGEST_TIME: Duration = Duration::from_secs(30);
const URL_MAX_BYTES: usize = 2048;
/// Connections that are kept for the next call: a storm of fires to one host should not dial for each.
const IDLE_PER_HOST: usize = 128;
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
            return Err(OutcallError::BadUrl(format!("longer than {URL_MAX_BYTES} bytes")));
        }
        let url = Url::parse(text).map_err(|error| OutcallError::BadUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutcallError::BadUrl("the scheme must be http or https".into()));
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

/// Asks for the addresses of a name.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>;

fn of_the_machine() -> Lookup {
    Arc::new(|host| Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.collect()) }))
}

/// Resolves and keeps only what the guard admits; the connection goes to just these addresses. A name
/// that means something else at its next lookup is judged by that one.
struct GuardedResolver {
    guard: Arc<Guard>,
    lookup: Lookup,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        let host = name.as_str().to_owned();
        let found = (self.lookup)(host.clone());
        Box::pin(async move {
            let found = found.await?;
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
    lookup: Lookup,
    /// Instead of connecting, in tests.
    #[cfg(test)]
    dialer: Option<tests::Recorder>,
    /// Made at the first call: reading the machine's certificates costs time and memory.
    client: OnceLock<Result<reqwest::Client, String>>,
}

impl GuardedClient {
    pub fn new(allow: &[String]) -> Self {
        let guard = Guard { allow: allow.iter().filter_map(|entry| Allow::parse(entry)).collect() };
        Self {
            guard: Arc::new(guard),
            lookup: of_the_machine(),
            #[cfg(test)]
            dialer: None,
            client: OnceLock::new(),
        }
    }

    fn client(&self) -> Result<&reqwest::Client, OutcallError> {
        let made = self.client.get_or_init(|| self.build().map_err(|error| error.to_string()));
        made.as_ref().map_err(|error| OutcallError::Failed(error.clone()))
    }

    fn build(&self) -> reqwest::Result<reqwest::Client> {
        let resolver = GuardedResolver { guard: self.guard.clone(), lookup: self.lookup.clone() };
        #[allow(clippy::disallowed_methods)] // this is the guarded client that everybody else must use
        let builder = reqwest::Client::builder()
            .dns_resolver(Arc::new(resolver))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIME)
            .timeout(TOTAL_TIME)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .pool_idle_timeout(IDLE_TIME)
            .user_agent(concat!("frontdesk/", env!("CARGO_PKG_VERSION")));
        #[cfg(test)]
        let builder = match &self.dialer {
            Some(recorder) => builder.connector_layer(recorder.clone()),
            None => builder,
        };
        builder.build()
    }
}

impl Outcall for GuardedClient {
    fn check(&self, url: &str) -> Result<(), OutcallError> {
        self.guard.check(url).map(drop)
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, OutcallError>> {
        Box::pin(async move {
            let url = self.guard.check(call.url)?; // the resolver hook is not asked for IP literals
            let failed = |error: reqwest::Error| {
                let refused = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
                    .any(|e| e.downcast_ref::<OutcallError>() == Some(&OutcallError::Refused));
                match () {
                    () if refused => OutcallError::Refused,
                    () if error.is_timeout() => OutcallError::TimedOut,
                    () => OutcallError::Failed(plain(&error)),
                }
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
            for (name, value) in call.headers {
                request = request.header(*name, *value);
            }
            if let Some(time) = call.time {
                request = request.timeout(time.min(LONGEST_TIME));
            }
            let mut response = request.send().await.map_err(failed)?;
            let status = response.status().as_u16();
            let content_type = response.headers().get(http::header::CONTENT_TYPE);
            let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let mut body = Vec::new();
            loop {
                match response.chunk().await {
                    Ok(None) => break,
                    Ok(Some(chunk)) if body.len() + chunk.len() <= call.max_bytes => body.extend_from_slice(&chunk),
                    Ok(Some(_)) | Err(_) if call.cut => break,
                    Ok(Some(_)) => return Err(OutcallError::TooLarge(call.max_bytes)),
                    Err(error) => return Err(failed(error)),
                }
            }
            Ok(Answer { status, content_type, body })
        })
    }
}

/// What went wrong, without the URL: it may carry a capability.
fn plain(error: &reqwest::Error) -> String {
    let kind = match () {
        () if error.is_connect() => "the connection failed",
        () if error.is_body() || error.is_decode() => "the response body was incomplete",
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

    /// A dialer that notes that it was asked to connect, and does not.
    #[derive(Clone, Default)]
    pub(super) struct Recorder(Arc<std::sync::atomic::AtomicUsize>);

    impl Recorder {
        fn dials(&self) -> usize {
            self.0.load(std::sync::atomic::Ordering::SeqCst)
        }
    }

    impl<S> tower::Layer<S> for Recorder {
        type Service = Recording<S>;

        fn layer(&self, real: S) -> Recording<S> {
            Recording { recorder: self.clone(), _real: real }
        }
    }

    #[derive(Clone)]
    pub(super) struct Recording<S> {
        recorder: Recorder,
        _real: S,
    }

    impl<S: tower::Service<R>, R> tower::Service<R> for Recording<S>
    where
        S::Error: From<Box<dyn std::error::Error + Send + Sync>>,
        S::Response: 'static,
        S::Error: 'static,
    {
        type Response = S::Response;
        type Error = S::Error;
        type Future = std::future::Ready<Result<S::Response, S::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: R) -> Self::Future {
            self.recorder.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let noted: Box<dyn std::error::Error + Send + Sync> = "noted instead of dialed".into();
            std::future::ready(Err(noted.into()))
        }
    }

    fn recording(allow: &[&str]) -> (GuardedClient, Recorder) {
        let recorder = Recorder::default();
        let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
        (GuardedClient { dialer: Some(recorder.clone()), ..GuardedClient::new(&allow) }, recorder)
    }

    /// Hosts that no URL of a stranger may reach, in every spelling that we know.
    const FORBIDDEN: [&str; 62] = [
        // this machine
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "0x7f.1",
        "0x7f.0x0.0x0.0x1",
        "0x7f000001",
        "0177.0.0.1",
        "0177.0.0.01",
        "017700000001",
        "2130706433",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "0.0.0.0",
        "0",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        // private networks
        "10.0.0.1",
        "10.255.255.255",
        "0xa.1",
        "012.0.0.1",
        "167772161",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "192.168.257",
        "[fc00::1]",
        "[fd12:3456::1]",
        "printer.local",
        // link-local and metadata services
        "169.254.0.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "[fe80::1]",
        "[febf::1]",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        // carrier-grade NAT, benchmarks, protocol assignments
        "100.64.0.1",
        "100.127.255.255",
        "198.18.0.1",
        "192.0.0.1",
        // IPv4 inside IPv6
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[2002:a00:1::1]",
        "[2001::1]",
        // multicast, broadcast, documentation
        "224.0.0.1",
        "239.255.255.250",
        "255.255.255.255",
        "[ff02::1]",
        "192.0.2.1",
        "[2001:db8::1]",
    ];

    #[tokio::test]
    async fn what_is_forbidden_is_never_dialed_and_refused_in_the_same_words() {
        let (client, recorder) = recording(&[]);
        let urls = FORBIDDEN.iter().flat_map(|host| {
            [format!("http://{host}/x"), format!("https://{host}:8443/api/cron/fire"), format!("http://{host}:80")]
        });
        let tricks = [
            "http://example.com@127.0.0.1/",
            "http://127.0.0.1#@example.com/",
            "http://user:pw@example.com/",
            "http://user@example.com/",
            "http://127.0.0.1\\@example.com/",
            "http://example.com:80@10.0.0.1/",
            "http:127.0.0.1/",
            "http:\\\\127.0.0.1\\x",
            "HTTP://LOCALHOST/",
        ];
        for url in urls.chain(tricks.map(str::to_owned)) {
            let given = client.check(&url);
            let body = Some("{}");
            let called = client.call(Call { json: body, cut: true, ..Call::get(&url, 9) }).await;
            assert_eq!(given, Err(OutcallError::Refused), "{url}");
            assert_eq!(called.err(), Some(OutcallError::Refused), "{url}");
        }
        assert_eq!(recorder.dials(), 0, "nothing was dialed");
        for url in ["ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/", "x", "http://", "", "relay:"] {
            assert!(matches!(client.check(url), Err(OutcallError::BadUrl(_))), "{url}");
        }
        let long = format!("http://e.com/{}", "a".repeat(3000));
        assert!(matches!(client.check(&long), Err(OutcallError::BadUrl(_))));
        // The recorder does record: what is public would be dialed.
        for url in ["https://93.184.216.34/wake", "http://[2606:2800:220:1::1]/", "http://[64:ff9b::5db8:d822]/"] {
            assert!(client.check(url).is_ok(), "{url}");
            assert!(matches!(client.get(url, 9).await, Err(OutcallError::Failed(_))), "{url}");
        }
        assert_eq!(recorder.dials(), 3);
    }

    /// A name that is public when it is given and this machine when it is called.
    #[tokio::test]
    async fn a_name_is_judged_by_the_addresses_that_are_dialed() {
        let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = trap.local_addr().unwrap().port();
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = asked.clone();
        let lookup: Lookup = Arc::new(move |_| {
            let nth = counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let inside: &[&str] = match nth % 4 {
                0 => &["127.0.0.1:0"],
                1 => &["169.254.169.254:0", "10.0.0.1:0"],
                2 => &["[::ffff:127.0.0.1]:0"],
                _ => &["[::1]:0"],
            };
            let found = inside.iter().map(|at| at.parse().unwrap()).collect();
            Box::pin(async move { Ok(found) })
        });
        let client = GuardedClient { lookup, ..GuardedClient::new(&[]) };
        let url = format!("http://rebind.example:{port}/wake");
        assert!(client.check(&url).is_ok(), "a name tells nothing by itself");
        for _ in 0..4 {
            assert_eq!(client.get(&url, 9).await.err(), Some(OutcallError::Refused));
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 4, "looked up for each call");
        tokio::select! {
            biased;
            _ = trap.accept() => panic!("it was dialed"),
            () = std::future::ready(()) => {}
        }
    }

    /// One answer for whoever asks, written as it is.
    async fn answering(answer: &'static [u8]) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 2048];
                let _ = stream.read(&mut head).await; // one packet holds these small requests
                let _ = stream.write_all(answer).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_an_answer_is_read_no_further_than_asked() {
        let client = GuardedClient::new(&["127.0.0.0/8".to_owned()]);
        let away =
            answering(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(client.get(&away, 99).await.unwrap().status, 302);
        let long = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n0123456789").await;
        assert_eq!(client.get(&long, 9).await.err(), Some(OutcallError::TooLarge(9)));
        let cut = client.call(Call { cut: true, ..Call::get(&long, 9) }).await.unwrap();
        assert_eq!((cut.status, cut.body.len()), (200, 0), "the status counts");
        let broken = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n0123456789").await;
        assert!(matches!(client.get(&broken, 99).await, Err(OutcallError::Failed(_))));
        let nonsense = answering(b"\0\0\0\0").await;
        assert!(matches!(client.get(&nonsense, 99).await, Err(OutcallError::Failed(_))));
    }

    #[tokio::test]
    async fn headers_go_as_they_are_and_a_call_may_have_less_time() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let client = GuardedClient::new(&["127.0.0.0/8".to_owned()]);
        let headers = [("Authorization", "Token abc def"), ("X-Signature", "sha256=00ff")];
        let call = Call { headers: &headers, ..Call::post(&url, "{\"a\":1}", 99) };
        let seen = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"{\"a\":1}") {
                assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.unwrap();
            String::from_utf8(seen).unwrap().to_ascii_lowercase()
        };
        let (answer, seen) = tokio::join!(client.call(call), seen);
        assert_eq!(answer.unwrap().status, 204);
        for line in ["authorization: token abc def", "x-signature: sha256=00ff", "content-type: application/json"] {
            assert_eq!(seen.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line} in {seen}");
        }
        // Nobody accepts any more; the connection stands in the queue and is never answered.
        let call = Call { time: Some(Duration::from_millis(20)), ..Call::get(&url, 99) };
        assert_eq!(client.call(call).await.err(), Some(OutcallError::TimedOut));
        let call = Call { headers: &[("X-Bad", "a\nb")], ..Call::get(&url, 99) };
        assert!(matches!(client.call(call).await, Err(OutcallError::Failed(_))), "no header is smuggled in");
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
        let resolver = GuardedResolver { guard: Arc::new(guard(&[])), lookup: of_the_machine() };
        // "localhost" is in every hosts file; the resolver sees only its addresses.
        let found = resolver.resolve("localhost".parse().unwrap()).await;
        assert!(found.is_err());
        let resolver = GuardedResolver { guard: Arc::new(guard(&["127.0.0.0/8", "::1"])), lookup: of_the_machine() };
        assert!(resolver.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
