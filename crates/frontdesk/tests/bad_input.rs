//! Requests of unauthenticated clients to the routes of vendors: every refusal has a reason, nothing of it is stored,
//! and the route still takes the next valid message.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod harness;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk::app::FIRST_TENANT;
use frontdesk_platforms::samples;
use frontdesk_platforms::shared::sample::{Said, Sample, SampleRequest};
use harness::{GatewayAccount, Harness, TIME_LIMIT};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const TEN_MINUTES_MS: u64 = 600_000;

/// A server with a bot of every vendor, and one agent that gets the messages.
struct Scene {
    harness: Harness,
    agent: GatewayAccount,
    numbers: std::cell::Cell<u64>,
}

impl Scene {
    async fn open() -> Self {
        let harness = Harness::open().await;
        let agent = harness.add_gateway("agent").await;
        for sample in samples() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let vendor = format!("http://{}", listener.local_addr().unwrap());
            let answer = sample.vendor_answer();
            let answers = Router::new().fallback(async move || ([(CONTENT_TYPE, "application/json")], answer));
            tokio::spawn(axum::serve(listener, answers).into_future());
            let ask = json!({ "platform": sample.platform(), "id": "desk", "tenant": FIRST_TENANT,
                "settings": sample.settings(&vendor), "secrets": sample.secrets() });
            harness.admin("POST", "/bots", &ask).await.expect(201);
            let link = json!({ "tenant": FIRST_TENANT, "platform": sample.platform(), "user_id": sample.user("desk", 1),
                "instance": "agent" });
            harness.admin("POST", "/bindings", &link).await.expect(201);
        }
        Self { harness, agent, numbers: std::cell::Cell::new(1) }
    }

    fn request(&self, sample: &dyn Sample, text: &str, now_ms: u64) -> SampleRequest {
        let number = self.numbers.replace(self.numbers.get() + 1);
        sample.request(&Said { bot: "desk", public_url: &self.harness.url, number, person: 1, text, now_ms })
    }

    fn now_ms(&self) -> u64 {
        self.harness.app.desk.env().now_ms()
    }

    /// Sends the bytes of a request in pieces, and returns status and body of the answer.
    async fn send(&self, pieces: &[&[u8]]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.harness.url.trim_start_matches("http://")).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in pieces {
            stream.write_all(piece).await.unwrap();
        }
        let mut answer = Vec::new();
        timeout(TIME_LIMIT, stream.read_to_end(&mut answer)).await.expect("no answer").unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A request with further lines in its head.
    async fn post(&self, request: &SampleRequest, more: &str, body: &[u8]) -> (u16, String) {
        let SampleRequest { path, headers, .. } = request;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n{headers}{more}Content-Length: {length}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), body]).await
    }

    fn stored(&self) -> u64 {
        self.harness.app.desk.meters().mail_rows()
    }

    /// A good message, so that a refusal before was about what was wrong with it.
    async fn takes_a_good_one(&self, sample: &dyn Sample) {
        let (before, request) = (self.stored(), self.request(sample, "good", self.now_ms()));
        let (status, found) = sample.answer();
        let (answered, body) = self.post(&request, "", request.body.as_bytes()).await;
        assert!(answered == status && body.contains(found), "{}: {answered} {body}", sample.platform());
        assert_eq!(self.stored(), before + 1, "{}", sample.platform());
    }

    fn refused(&self, sample: &dyn Sample, what: &str, (status, body): (u16, String), before: u64) {
        assert!((400..500).contains(&status), "{}, {what}: {status} {body}", sample.platform());
        assert!(body.len() > 10, "{}, {what}: no reason: {body:?}", sample.platform());
        assert_eq!(self.stored(), before, "{}, {what}: stored", sample.platform());
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused_with_a_reason() {
    let scene = Scene::open().await;
    for sample in samples() {
        let before = scene.stored();
        for encoding in ["gzip", "br", "deflate, gzip", "zstd"] {
            let request = scene.request(&*sample, "packed", scene.now_ms());
            let more = format!("Content-Encoding: {encoding}\r\n");
            let response = scene.post(&request, &more, request.body.as_bytes()).await;
            assert!(
                response.0 == 415 && response.1.contains("Content-Encoding"),
                "{}: {response:?}",
                sample.platform()
            );
            scene.refused(&*sample, encoding, response, before);
        }
        let request = scene.request(&*sample, "plain", scene.now_ms());
        let response = scene.post(&request, "Content-Encoding: identity\r\n", request.body.as_bytes()).await;
        assert_eq!(response.0, sample.answer().0, "{}: {}", sample.platform(), response.1);
    }
    scene.harness.finish().await;
}

/// Each header that a vendor signs or proves itself with, twice.
#[tokio::test]
async fn doubled_headers_are_refused() {
    let scene = Scene::open().await;
    for sample in samples() {
        let before = scene.stored();
        let lines = scene.request(&*sample, "twice", scene.now_ms()).headers;
        let names: Vec<&str> = lines.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
        for name in names.into_iter().filter(|name| !name.eq_ignore_ascii_case("content-type")) {
            let request = scene.request(&*sample, "twice", scene.now_ms());
            let line = request.headers.lines().find(|line| line.starts_with(name)).unwrap();
            let response = scene.post(&request, &format!("{line}\r\n"), request.body.as_bytes()).await;
            scene.refused(&*sample, name, response, before);
        }
        scene.takes_a_good_one(&*sample).await;
    }
    scene.harness.finish().await;
}

/// The signature is of the bytes: another spelling of the same text is another body.
#[tokio::test]
async fn unicode_is_taken_as_it_is_signed_and_never_normalized() {
    const COMPOSED: &str = "caf\u{e9}";
    const DECOMPOSED: &str = "cafe\u{301}";
    let scene = Scene::open().await;
    let mut socket = scene.harness.socket(&scene.agent).await;
    let mut changed = 0;
    for sample in samples().into_iter().filter(|sample| sample.signs_body()) {
        let before = scene.stored();
        let request = scene.request(&*sample, COMPOSED, scene.now_ms());
        let other = request.body.replace(COMPOSED, DECOMPOSED);
        if other != request.body {
            let response = scene.post(&request, "", other.as_bytes()).await;
            scene.refused(&*sample, "the other form", response, before);
            changed += 1;
        }
        for text in [COMPOSED, DECOMPOSED] {
            let request = scene.request(&*sample, text, scene.now_ms());
            let response = scene.post(&request, "", request.body.as_bytes()).await;
            assert_eq!(response.0, sample.answer().0, "{}: {}", sample.platform(), response.1);
            let frame = socket.next().await;
            let body = frame.json["forward"]["bodyB64"].as_str().map(|body| STANDARD.decode(body).unwrap());
            let seen = body.map_or_else(|| frame.text().to_owned(), |body| String::from_utf8(body).unwrap());
            assert!(seen.contains(text), "{}: {seen:?}", sample.platform());
            socket.ack(&frame).await;
        }
    }
    assert!(changed >= 4, "only sealed bodies do not show the text: {changed}");
    scene.harness.finish().await;
}

#[tokio::test]
async fn a_clock_that_is_ten_minutes_off_is_named() {
    let scene = Scene::open().await;
    for sample in samples().into_iter().filter(|sample| sample.signs_time()) {
        let before = scene.stored();
        for now_ms in [scene.now_ms() - TEN_MINUTES_MS, scene.now_ms() + TEN_MINUTES_MS] {
            let request = scene.request(&*sample, "late", now_ms);
            let response = scene.post(&request, "", request.body.as_bytes()).await;
            assert!(
                response.1.contains("clock") || response.1.contains("minutes"),
                "{}: {response:?}",
                sample.platform()
            );
            scene.refused(&*sample, "another time", response, before);
        }
        scene.takes_a_good_one(&*sample).await;
    }
    scene.harness.finish().await;
}

/// A body in chunks of one byte is the same body.
#[tokio::test]
async fn a_body_that_trickles_in_is_verified_as_a_whole() {
    let scene = Scene::open().await;
    for sample in samples() {
        let before = scene.stored();
        let request = scene.request(&*sample, "slowly", scene.now_ms());
        let SampleRequest { path, headers, body } = &request;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: desk\r\nConnection: close\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"
        );
        let chunks: Vec<Vec<u8>> = body.bytes().map(|byte| [b"1\r\n".as_slice(), &[byte], b"\r\n"].concat()).collect();
        let mut pieces = vec![head.as_bytes()];
        pieces.extend(chunks.iter().map(Vec::as_slice));
        pieces.push(b"0\r\n\r\n");
        let response = scene.send(&pieces).await;
        assert_eq!(response.0, sample.answer().0, "{}: {}", sample.platform(), response.1);
        assert_eq!(scene.stored(), before + 1, "{}", sample.platform());
        // Chunks that end early are no body at all.
        let cut = [&pieces[..pieces.len() - 2], &[b"x\r\n".as_slice()]].concat();
        let response = scene.send(&cut).await;
        scene.refused(&*sample, "a broken chunk", response, before + 1);
    }
    scene.harness.finish().await;
}

/// Bodies that no parser should survive badly, signed or not: none is stored, and each is answered.
#[tokio::test]
async fn rubbish_is_answered() {
    let scene = Scene::open().await;
    let deep = "[".repeat(60_000);
    let bomb = "<!DOCTYPE a [<!ENTITY x \"xxxxxxxxxx\"><!ENTITY y \"&x;&x;&x;&x;&x;&x;&x;&x;\">]><xml><Encrypt>&y;</Encrypt></xml>";
    for sample in samples() {
        let before = scene.stored();
        for body in ["", "\0\0\0\0", "{", &deep, bomb, "a=%ff%fe&a=b", "\u{feff}{}"] {
            let request = scene.request(&*sample, "unused", scene.now_ms());
            let (status, response) = scene.post(&request, "", body.as_bytes()).await;
            let what = &body[..body.len().min(20)];
            assert!(status < 500, "{}, {what:?}: {status} {response}", sample.platform());
            assert_eq!(scene.stored(), before, "{}, {what:?}: stored", sample.platform());
        }
        scene.takes_a_good_one(&*sample).await;
    }
    scene.harness.finish().await;
}
