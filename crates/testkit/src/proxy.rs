//! A TCP proxy whose directions can be cut one by one: bytes that are sent into a cut are lost, without an error.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Requests do not arrive.
pub const CUT_TO_SERVER: u8 = 1;
/// Requests arrive, answers do not.
pub const CUT_TO_CLIENT: u8 = 2;

pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
    hang_up: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    cuts: AtomicU8,
    /// Of single connections, in the order in which they came.
    connections: Mutex<Vec<Arc<AtomicU8>>>,
}

impl Proxy {
    /// One in front of the server of this URL, and the URL that leads through it.
    pub async fn before(url: &str) -> (Self, String) {
        let mut url: url::Url = url.parse().unwrap();
        let proxy = Self::to(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())).await;
        url.set_port(Some(proxy.address.port())).unwrap();
        (proxy, url.into())
    }

    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, hang_up) = (Arc::new(State::default()), watch::Sender::new(0));
        tokio::spawn({
            let (state, hang_up) = (state.clone(), hang_up.subscribe());
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let (state, mut hang_up, server) = (state.clone(), hang_up.clone(), server.clone());
                    hang_up.mark_unchanged();
                    let own = Arc::new(AtomicU8::new(0));
                    state.connections.lock().unwrap().push(own.clone());
                    tokio::spawn(async move {
                        let Ok(server) = TcpStream::connect(server).await else { return };
                        let (client, server) = (client.into_split(), server.into_split());
                        let is_cut = |direction| {
                            let cuts = state.cuts.load(Ordering::SeqCst) | own.load(Ordering::SeqCst);
                            cuts & direction != 0
                        };
                        tokio::select! {
                            () = forward(client.0, server.1, || is_cut(CUT_TO_SERVER)) => {}
                            () = forward(server.0, client.1, || is_cut(CUT_TO_CLIENT)) => {}
                            _ = hang_up.changed() => {}
                        }
                    });
                }
            }
        });
        Self { address, state, hang_up }
    }

    /// Which directions lose what is sent; 0 for none.
    pub fn cut(&self, directions: u8) {
        self.state.cuts.store(directions, Ordering::SeqCst);
    }

    /// How many connections came so far.
    pub fn connections(&self) -> usize {
        self.state.connections.lock().unwrap().len()
    }

    /// The same for one connection, until its end.
    pub fn cut_connection(&self, number: usize, directions: u8) {
        self.state.connections.lock().unwrap()[number].store(directions, Ordering::SeqCst);
    }

    /// Ends all connections. What was lost in a cut cannot be made up for on the same connection.
    pub fn hang_up(&self) {
        self.hang_up.send_modify(|times| *times += 1);
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_cut: impl Fn() -> bool) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
        if !is_cut() && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
