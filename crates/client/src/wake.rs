//! A minimal HTTP server that can serve as a wake URL.
//!
//! Wake calls have no payload and no signature; any caller can only make the agent look for mail.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const HEAD_MAX_BYTES: usize = 8192;
const HEAD_TIME: Duration = Duration::from_secs(5);

pub struct WakeListener {
    pub url: String,
    called: Arc<Notify>,
    stop: CancellationToken,
}

impl WakeListener {
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}/wake", listener.local_addr()?);
        let (called, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        tokio::spawn(serve(listener, called.clone(), stop.clone()));
        Ok(Self { url, called, stop })
    }

    /// Waits for the next call; an earlier one that was not waited for counts.
    pub async fn called(&self) {
        self.called.notified().await;
    }
}

impl Drop for WakeListener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, called: Arc<Notify>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        // One caller at a time; slow ones are cut off.
        if tokio::time::timeout(HEAD_TIME, answer(stream)).await.is_ok_and(|answered| answered.is_ok()) {
            called.notify_one();
        }
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_MAX_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await?;
    stream.shutdown().await
}
