//! Over a socket.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::TestEnv;

/// Whole answer to one request; empty if the connection was closed without one.
async fn exchange(server: &Server, request: &str) -> String {
    let address = server.base_url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
}

fn post(path: &str, mime: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: {mime}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn json_of(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn served() -> Server {
    world().serve_with(Arc::new(TestEnv::new(1))).await.unwrap()
}

#[tokio::test]
async fn parameters_come_in_every_form() {
    let server = served().await;
    let path = format!("/bot{TOKEN}/sendMessage");
    let requests = [
        get(&format!("{path}?chat_id={ANN}&text=a+b")),
        post(&path, "application/json", &json!({"chat_id": ANN, "text": "a b"}).to_string()),
        post(&path, "application/x-www-form-urlencoded", &format!("chat_id={ANN}&text=a%20b")),
        post(
            &path,
            "multipart/form-data; boundary=q",
            &format!(
                "--q\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n{ANN}\r\n--q\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\na b\r\n--q--\r\n"
            ),
        ),
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\ntransfer-encoding: chunked\r\n\r\n8\r\nchat_id=\r\nc\r\n{ANN}&text=a+b\r\n0\r\n\r\n"
        ),
    ];
    for request in requests {
        let answer = exchange(&server, &request).await;
        assert_eq!(json_of(&answer)["result"]["text"], "a b", "{request}\n{answer}");
    }
    let broken = exchange(&server, &post(&path, "application/json", "{")).await;
    assert!(broken.starts_with("HTTP/1.1 400"), "{broken}");
}

#[tokio::test]
async fn a_long_poll_waits_for_an_update() {
    let server = served().await;
    updates(&server.fake);
    let request = get(&format!("/bot{TOKEN}/getUpdates?timeout=50"));
    let poll = exchange(&server, &request);
    let speak = async {
        act(&server.fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "now"}));
    };
    let (answer, ()) = tokio::join!(poll, speak);
    assert_eq!(json_of(&answer)["result"][0]["message"]["text"], "now");
}

#[tokio::test]
async fn faults_reach_the_socket() {
    let server = served().await;
    let request = get(&format!("/bot{TOKEN}/getMe"));
    for (fault, wanted) in [(Fault::DropBefore, ""), (Fault::DropAfter, ""), (Fault::BadGateway, "HTTP/1.1 502")] {
        server.fake.fault(FaultRule { method: "getMe".into(), fault, times: 1 });
        let answer = exchange(&server, &request).await;
        assert!(answer.starts_with(wanted) && (!wanted.is_empty() || answer.is_empty()), "{answer}");
    }
    server.fake.fault(FaultRule { method: "*".into(), fault: Fault::Cut, times: 1 });
    let cut = exchange(&server, &request).await;
    assert!(serde_json::from_str::<Value>(cut.split_once("\r\n\r\n").unwrap().1).is_err());
}

#[tokio::test]
async fn a_webhook_is_called_until_it_accepts() {
    let server = served().await;
    updates(&server.fake);
    let hook = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tg", hook.local_addr().unwrap());
    done(&server.fake, "setWebhook", json!({"url": url, "secret_token": "s"}));
    act(&server.fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "one"}));
    for status in ["500 No", "200 OK"] {
        let (mut stream, _) = hook.accept().await.unwrap();
        let mut request = Vec::new();
        while !String::from_utf8_lossy(&request).contains("\"text\":\"one\"") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        assert!(request.starts_with("POST /tg HTTP/1.1\r\n") && request.contains("Secret-Token: s\r\n"), "{request}");
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(reply.as_bytes()).await.unwrap();
        drop(stream);
        if status.starts_with('5') {
            let clock = post("/control/clock", "application/json", "{\"advance_ms\": 600}");
            let info = |fake: &FakeTelegram| done(fake, "getWebhookInfo", json!({})).get("last_error_date").cloned();
            server.fake.clone().wait_for(info).await;
            exchange(&server, &clock).await;
        }
    }
    let waiting = server.fake.wait_for(|fake| (fake.updates_waiting(BOT) == 0).then_some(()));
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap();
}

#[tokio::test]
async fn other_programs_control_it() {
    let server = served().await;
    let say = json!([{"act": "say", "chat": GROUP, "from": ANN, "text": "hello"}]).to_string();
    let response = json_of(&exchange(&server, &post("/control/act", "application/json", &say)).await);
    assert_eq!(response["result"][0]["text"], "hello");
    let chat = json_of(&exchange(&server, &get(&format!("/control/chat?bot={BOT}&chat={GROUP}"))).await);
    assert_eq!(chat["result"]["messages"][0]["text"], "hello");
    done(&server.fake, "getMe", json!({}));
    let calls = json_of(&exchange(&server, &get("/control/calls?method=getme&count=1&wait_ms=5000")).await);
    assert_eq!(calls["result"][0]["method"], "getMe");
    let wrong = exchange(&server, &post("/control/act", "application/json", "{\"act\":\"fly\"}")).await;
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
    exchange(&server, &post("/control/reset", "application/json", "")).await;
    assert_eq!(call(&server.fake, "getMe", json!({})).status, 401);
}
