//! The bench's platform: events as JSON lines on a loopback socket, taken like any platform's.
//!
//! A batch is a line with its count, then that many events, which may name their tenant as their scope. It is answered after
//! the commit, as a platform would be.

use std::net::SocketAddr;
use std::sync::Arc;

use frontdesk_core::intake::{TenantSource, Verified};
use frontdesk_core::{Desk, Intake};
use frontdesk_wire::MessageEvent;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::app::FIRST_TENANT;

/// Until the server stops: a feed that stays would keep the server's connections to the store open.
pub(super) async fn open(desk: Arc<Desk>, stop: CancellationToken) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
            let desk = desk.clone();
            tokio::spawn(async move {
                if let Err(error) = take(&desk, stream).await {
                    eprintln!("feed connection failed: {error:#}");
                }
            });
        }
    });
    Ok(address)
}

async fn take(desk: &Desk, stream: TcpStream) -> anyhow::Result<()> {
    let _ = stream.set_nodelay(true); // only a hint
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::with_capacity(256 * 1024, read);
    let mut line = String::new();
    loop {
        line.clear();
        if read.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let count: usize = line.trim().parse()?;
        let mut batch = Vec::with_capacity(count);
        for _ in 0..count {
            line.clear();
            read.read_line(&mut line).await?;
            let mut event: MessageEvent = serde_json::from_str(&line)?;
            let tenant = event.source.scope_id.take();
            let tenant_source = TenantSource::Tenant(tenant.as_deref().unwrap_or(FIRST_TENANT).into());
            batch.push(Intake::new(Verified::by("the bench's own socket"), tenant_source, "desk".into(), event));
        }
        let receipts = desk.inbound().receive(batch).await?;
        anyhow::ensure!(receipts.iter().all(|receipt| receipt.fresh && receipt.verdict.outcome == "delivered"));
        write.write_all(b"ok\n").await?;
    }
}
