//! Requests of a fake to the server under test, on the loopback interface only.

use std::time::Duration;

use tokio::net::TcpStream;

use super::http::Connection;

const LIMIT: Duration = Duration::from_secs(30);

/// Status and body of the answer.
pub(in crate::fakes) async fn call(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(u16, Vec<u8>), String> {
    let url = url::Url::parse(url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
    let host = url.host_str().unwrap_or_default();
    if url.scheme() != "http" || host != "127.0.0.1" {
        return Err(format!("{url} is not an http URL of the loopback interface"));
    }
    let port = url.port_or_known_default().unwrap_or(80);
    let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let request = [head.as_bytes(), body].concat();
    let asking = async {
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        Connection::new(stream).ask(&request).await.map_err(|error| error.to_string())
    };
    tokio::time::timeout(LIMIT, asking).await.map_err(|_| "it took too long".to_owned())?
}
