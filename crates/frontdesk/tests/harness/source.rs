//! A loopback web server for one file, which responds when told to.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::TIME_LIMIT;

pub(crate) struct Source {
    pub(crate) url: String,
    asked: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    serving: JoinHandle<()>,
}

impl Source {
    pub(crate) async fn open(mime: &str, body: &[u8]) -> Self {
        Self::saying("200 OK", mime, body).await
    }

    /// A server that responds with this status.
    pub(crate) async fn saying(status: &str, mime: &str, body: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let (asked, answers) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {mime}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(body);
        let (arrived, allowed) = (asked.clone(), answers.clone());
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (arrived, allowed, answer) = (arrived.clone(), allowed.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    arrived.add_permits(1);
                    allowed.acquire().await.unwrap().forget();
                    let _ = stream.write_all(&answer).await; // the client may be gone
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { url, asked, answers, serving }
    }

    /// Lets the next `count` responses out.
    pub(crate) fn answer(&self, count: usize) {
        self.answers.add_permits(count);
    }

    /// Waits for a request.
    pub(crate) async fn asked(&self) {
        timeout(TIME_LIMIT, self.asked.acquire()).await.expect("no request received").unwrap().forget();
    }

    pub(crate) fn was_asked(&self) -> bool {
        self.asked.available_permits() > 0
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
