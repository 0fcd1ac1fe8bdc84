//! What is never called, and how the rest is.

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

/// Hosts that no URL of a caller may reach, in every spelling that we know.
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
        let called = client.call(Call { cut: true, ..Call::post(&url, "{}", 9) }).await;
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
        assert!(matches!(client.get(url, 9).await, Err(OutcallError::NotSent(_))), "{url}");
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

/// The same answer to every request, written as it is.
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
    let away = answering(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n").await;
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
    // The listener does not accept any more; the connection stays in the backlog and is never answered.
    let call = Call { time: Some(Duration::from_millis(20)), ..Call::get(&url, 99) };
    assert_eq!(client.call(call).await.err(), Some(OutcallError::TimedOut));
    let call = Call { headers: &[("X-Bad", "a\nb")], ..Call::get(&url, 99) };
    assert!(matches!(client.call(call).await, Err(OutcallError::NotSent(_))), "no header is smuggled in");
}

/// Answers with what was asked: its first line, its headers and its body.
async fn echoing() -> String {
    use axum::body::to_bytes;
    use axum::extract::Request;
    let echo = async |request: Request| {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        let kind = parts.headers.get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        let length = parts.headers.contains_key("content-length");
        let text = format!("{} {kind} {length}\n{}", parts.method, String::from_utf8_lossy(&body));
        ([("x-rate", "7"), ("retry-after", "3")], text)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(echo)).await });
    url
}

fn pieces(texts: &'static [&'static str]) -> frontdesk_core::port::media::MediaBody {
    Box::pin(futures_util::stream::iter(texts.iter().map(|text| Ok(axum::body::Bytes::from_static(text.as_bytes())))))
}

#[tokio::test]
async fn every_method_and_kind_of_body_goes_out_and_headers_come_back() {
    let (client, url) = (GuardedClient::new(&["127.0.0.0/8".to_owned()]), echoing().await);
    let said = async |method, body| {
        let answer = client.call(Call { method, body, ..Call::get(&url, 9_999) }).await.unwrap();
        assert_eq!((answer.header("x-rate"), answer.header("retry-after")), (Some("7"), Some("3")));
        String::from_utf8(answer.body).unwrap()
    };
    assert_eq!(said(HttpMethod::Delete, Body::Empty).await, "DELETE  false\n");
    assert_eq!(said(HttpMethod::Patch, Body::Json("{}")).await, "PATCH application/json true\n{}");
    let fields = [("a b", "c&d"), ("e", "ü")];
    let form = "POST application/x-www-form-urlencoded true\na+b=c%26d&e=%C3%BC";
    assert_eq!(said(HttpMethod::Post, Body::Form(&fields)).await, form);
    let bytes = Body::Bytes { mime: "image/png", bytes: axum::body::Bytes::from_static(b"png") };
    assert_eq!(said(HttpMethod::Put, bytes).await, "PUT image/png true\npng");
    for (length, named) in [(Some(4), true), (None, false)] {
        let stream = Body::Stream { mime: "text/plain", length, body: pieces(&["ab", "cd"]) };
        assert_eq!(said(HttpMethod::Put, stream).await, format!("PUT text/plain {named}\nabcd"));
    }
    let file = PartValue::File {
        filename: "f\r\nX-Bad: 1.txt",
        mime: "text/plain",
        length: Some(2),
        body: pieces(&["h", "i"]),
    };
    let parts = vec![Part { name: "chat_id", value: PartValue::Text("42") }, Part { name: "document", value: file }];
    let text = said(HttpMethod::Post, Body::Multipart(parts)).await;
    for piece in ["multipart/form-data", "name=\"chat_id\"", "\r\n42\r\n", "filename=\"f__X-Bad: 1.txt\"", "\r\nhi\r\n"]
    {
        assert!(text.contains(piece), "{piece} in {text}");
    }
}

#[tokio::test]
async fn an_answer_can_be_read_as_it_comes_up_to_its_bound() {
    use frontdesk_core::port::media::read_whole;
    let (client, url) = (GuardedClient::new(&["127.0.0.0/8".to_owned()]), echoing().await);
    let body = "x".repeat(1_000);
    let call = |max_bytes| Call { body: Body::Json(&body), method: HttpMethod::Post, ..Call::get(&url, max_bytes) };
    let answer = client.open(call(9_999)).await.unwrap();
    assert_eq!((answer.status, answer.header("x-rate")), (200, Some("7")));
    assert!(read_whole(answer.body).await.unwrap().ends_with(b"xxx"));
    assert_eq!(client.open(call(500)).await.err(), Some(OutcallError::TooLarge(500)));
    // Without a length it is noticed while it comes.
    let endless = answering(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n0123456789").await;
    let answer = client.open(Call::get(&endless, 5)).await.unwrap();
    assert_eq!(read_whole(answer.body).await.unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
}

/// Answers in two pieces; the second one is written when it is told to.
async fn going_on() -> (String, Arc<tokio::sync::Notify>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let go_on = Arc::new(tokio::sync::Notify::new());
    let resumed = go_on.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 2048];
            let _ = stream.read(&mut head).await; // one packet holds these small requests
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfirst").await;
            resumed.notified().await;
            let _ = stream.write_all(b" second").await;
        }
    });
    (url, go_on)
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_limited_in_time_only_until_it_begins() {
    use frontdesk_core::port::media::read_whole;
    let client = GuardedClient::new(&["127.0.0.0/8".to_owned()]);
    let (url, go_on) = going_on().await;
    let time = Some(Duration::from_secs(3));
    let limited = client.open(Call { time, ..Call::get(&url, 99) }).await.unwrap();
    let endless = client.open(Call { time, endless: true, ..Call::get(&url, 99) });
    // The first connection is held until its time limit, and only then continues.
    assert!(read_whole(limited.body).await.is_err(), "an ordinary answer is over by then");
    go_on.notify_one();
    let endless = endless.await.unwrap();
    let second = async {
        tokio::time::sleep(Duration::from_secs(4)).await; // longer than its time
        go_on.notify_one();
    };
    let (body, ()) = tokio::join!(read_whole(endless.body), second);
    assert_eq!(body.unwrap(), b"first second");

    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let never = client.open(Call { time, endless: true, ..Call::get(&url, 99) }).await;
    assert_eq!(never.err(), Some(OutcallError::TimedOut));
}

#[tokio::test]
async fn an_origin_that_the_operator_named_may_be_private_and_nothing_else_becomes_so() {
    let (client, recorder) = recording(&[]);
    for (url, trusted) in [
        ("http://127.0.0.1:9/bot/send", "http://127.0.0.1:9"),
        ("http://localhost:9/x", "http://localhost:9/api/"),
        ("https://10.0.0.1/x", "https://10.0.0.1:443/y"),
    ] {
        let before = recorder.dials();
        let call = Call { trusted: Some(trusted), ..Call::get(url, 9) };
        assert!(matches!(client.call(call).await, Err(OutcallError::NotSent(_))), "{url}");
        assert_eq!(recorder.dials(), before + 1, "{url} is dialed");
    }
    let before = recorder.dials();
    for (url, trusted) in [
        ("http://127.0.0.1:8/x", "http://127.0.0.1:9"),
        ("https://127.0.0.1:9/x", "http://127.0.0.1:9"),
        ("http://127.0.0.2:9/x", "http://127.0.0.1:9"),
        ("http://127.0.0.1:9@10.0.0.1/x", "http://127.0.0.1:9"),
        ("http://user@127.0.0.1:9/x", "http://127.0.0.1:9"),
        ("http://127.0.0.1:9/x", "not a url"),
        ("http://127.0.0.1:9/x", ""),
    ] {
        let call = Call { trusted: Some(trusted), ..Call::get(url, 9) };
        assert_eq!(client.call(call).await.err(), Some(OutcallError::Refused), "{url} by {trusted}");
    }
    let call = Call { trusted: Some("file:///etc"), ..Call::get("file:///etc/passwd", 9) };
    assert!(matches!(client.call(call).await, Err(OutcallError::BadUrl(_))));
    assert_eq!(recorder.dials(), before);
}

#[tokio::test]
async fn an_error_says_whether_anything_was_sent() {
    let client = GuardedClient::new(&["127.0.0.0/8".to_owned()]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let refused = client.get(&url, 9).await.unwrap_err();
    assert!(!refused.may_have_been_sent(), "{refused}");
    let closed = answering(b"").await; // reads the request, writes nothing and keeps the connection
    let call = Call { time: Some(Duration::from_millis(50)), ..Call::post(&closed, "{}", 9) };
    assert!(client.call(call).await.unwrap_err().may_have_been_sent());
    let broken = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n0123456789").await;
    assert!(client.get(&broken, 99).await.unwrap_err().may_have_been_sent());
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

/// A server that takes one upgrade and says one thing.
async fn greeting() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().route(
        "/link",
        axum::routing::get(|upgrade: axum::extract::WebSocketUpgrade| async {
            upgrade.on_upgrade(|mut socket| async move {
                let greeting = axum::extract::ws::Message::Text("hello".into());
                let _ = socket.send(greeting).await;
                while let Some(Ok(message)) = socket.recv().await {
                    let _ = socket.send(message).await;
                }
            })
        }),
    );
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("{address}")
}

#[tokio::test]
async fn a_socket_goes_where_calls_may_go_and_nowhere_else() {
    use frontdesk_core::port::outcall::SocketMessage;
    let at = greeting().await;
    let client = GuardedClient::new(&[]);
    let (url, base) = (format!("ws://{at}/link"), format!("http://{at}/api"));
    let dial = |trusted| Dial { url: &url, trusted, max_bytes: 1_000 };
    assert_eq!(client.socket(dial(None)).await.err(), Some(OutcallError::Refused), "a private address");
    let elsewhere = Some("http://127.0.0.1:1/api");
    assert_eq!(client.socket(dial(elsewhere)).await.err(), Some(OutcallError::Refused), "another port");
    let mut socket = client.socket(dial(Some(&base))).await.ok().unwrap();
    assert_eq!(socket.next().await, Ok(SocketMessage::Text("hello".into())));
    socket.send(SocketMessage::Text("again".into())).await.unwrap();
    assert_eq!(socket.next().await, Ok(SocketMessage::Text("again".into())));
    socket.send(SocketMessage::Text("x".repeat(2_000))).await.unwrap();
    assert!(socket.next().await.is_err(), "longer than asked for");
    for host in FORBIDDEN {
        let url = format!("wss://{host}/link");
        let refused = client.socket(Dial { url: &url, trusted: None, max_bytes: 1_000 }).await.err().unwrap();
        assert!(matches!(refused, OutcallError::Refused | OutcallError::BadUrl(_)), "{host}: {refused:?}");
    }
    for url in ["http://example.org/", "wss://user:word@example.org/", "file:///etc/passwd", ""] {
        assert!(client.socket(Dial { url, trusted: None, max_bytes: 1_000 }).await.is_err(), "{url}");
    }
    let lookup: Lookup = Arc::new(|_| Box::pin(async { Ok(vec!["10.0.0.7:0".parse().unwrap()]) }));
    let misled = GuardedClient { lookup, ..GuardedClient::new(&[]) };
    let url = "wss://wss-primary.vendor.example/link";
    let refused = misled.socket(Dial { url, trusted: None, max_bytes: 1_000 }).await.err();
    assert_eq!(refused, Some(OutcallError::Refused), "a name that means a private address");
}
