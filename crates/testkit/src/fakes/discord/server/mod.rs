//! A server around the fake, on a free port of the loopback interface: REST, files, gateway and control API.

mod api;
mod control;
mod endpoints;
mod gateway;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use frontdesk_core::Env;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::FakeDiscord;
use crate::fakes::serving::clock::Clock;
use crate::fakes::serving::http::Connection;

/// It ends, with its connections, when it is dropped.
pub struct Server {
    /// For the setting `base_url`: up to and with `/api/v10`.
    pub base_url: String,
    /// For the setting `gateway_url`: scheme and host.
    pub gateway_url: String,
    pub fake: FakeDiscord,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeDiscord {
    /// With the time of this machine.
    pub async fn serve(self) -> io::Result<Server> {
        self.serve_by(Clock::of_machine()).await
    }

    /// With the time of this environment; a test moves it.
    pub async fn serve_with(self, env: Arc<dyn Env>) -> io::Result<Server> {
        self.serve_by(Clock::of(env)).await
    }

    async fn serve_by(self, clock: Clock) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        self.state().host = format!("http://{address}");
        let site = Site { fake: self.clone(), clock: Arc::new(clock) };
        let task = tokio::spawn(accept(listener, site));
        let (base_url, gateway_url) = (format!("http://{address}/api/v10"), format!("ws://{address}"));
        Ok(Server { base_url, gateway_url, fake: self, task })
    }
}

#[derive(Clone)]
struct Site {
    fake: FakeDiscord,
    clock: Arc<Clock>,
}

async fn accept(listener: TcpListener, site: Site) {
    // Aborted with this task, because the set is dropped with it.
    let mut tasks = JoinSet::new();
    tasks.spawn(endpoints::run(site.clone()));
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { tasks.spawn(converse(stream, site.clone())); }
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Requests of one connection, one after the other. What is not HTTP ends it; an upgrade makes it a socket.
async fn converse(stream: TcpStream, site: Site) {
    // Answers go out as they are; a client waits for each of them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection = Connection::new(stream);
    while let Ok(Some(request)) = connection.request().await {
        if request.header("upgrade").is_some_and(|it| it.eq_ignore_ascii_case("websocket")) {
            return gateway::run(site, connection, &request).await;
        }
        let reply = if request.path.starts_with("/control/") {
            control::answer(&site, &request).await
        } else {
            match api::answer(&site, &request).await {
                Some(reply) => reply,
                None => return,
            }
        };
        let is_last = request.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        if connection.reply(&reply).await.is_err() || is_last {
            return;
        }
    }
}
