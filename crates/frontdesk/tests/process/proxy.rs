//! A TCP proxy whose directions can be cut one by one: what is sent into a cut is gone, and nobody is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Requests do not arrive.
pub(crate) const CUT_TO_SERVER: u8 = 1;
/// Requests arrive, answers do not.
pub(crate) const CUT_TO_CLIENT: u8 = 2;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: Arc<AtomicU8>,
    hang_up: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU8::new(0));
        let hang_up = watch::Sender::new(0);
        tokio::spawn({
            let (cuts, hang_up) = (cuts.clone(), hang_up.subscribe());
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let (cuts, mut hang_up, server) = (cuts.clone(), hang_up.clone(), server.clone());
                    hang_up.mark_unchanged();
                    tokio::spawn(async move {
                        let Ok(server) = TcpStream::connect(server).await else { return };
                        let (client, server) = (client.into_split(), server.into_split());
                        tokio::select! {
                            () = forward(client.0, server.1, &cuts, CUT_TO_SERVER) => {}
                            () = forward(server.0, client.1, &cuts, CUT_TO_CLIENT) => {}
                            _ = hang_up.changed() => {}
                        }
                    });
                }
            }
        });
        Self { address, cuts, hang_up }
    }

    /// Which directions lose what is sent; 0 for none.
    pub(crate) fn cut(&self, directions: u8) {
        self.cuts.store(directions, Ordering::SeqCst);
    }

    /// Ends all connections. What was lost in a cut cannot be made up for on the same connection.
    pub(crate) fn hang_up(&self) {
        self.hang_up.send_modify(|times| *times += 1);
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cuts: &AtomicU8, direction: u8) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
        if cuts.load(Ordering::SeqCst) & direction == 0 && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
