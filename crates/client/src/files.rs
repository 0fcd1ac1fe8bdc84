//! Files of messages: they are at the server, which fetches and sends them.

use std::time::Duration;

use reqwest::{Client, Response};
use serde::Deserialize;

use crate::socket::SocketTransport;

const TIME: Duration = Duration::from_mins(2);

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("it is not a file of the server")]
    Elsewhere,
    #[error("the server answered {0}")]
    Status(u16),
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the server does not respond: {0}")]
    Http(reqwest::Error),
}

impl From<reqwest::Error> for FileError {
    fn from(error: reqwest::Error) -> Self {
        Self::Http(error.without_url())
    }
}

#[derive(Deserialize)]
struct Stored {
    id: String,
}

fn client() -> Result<Client, FileError> {
    #[allow(clippy::disallowed_methods)] // it calls the agent's own server
    let builder = Client::builder();
    Ok(builder.no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(TIME).build()?)
}

fn accepted(response: Response) -> Result<Response, FileError> {
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(FileError::Status(status.as_u16())),
    }
}

impl SocketTransport {
    /// Fetches a file of a message. Whatever the URL says, the server is asked for it: the token goes nowhere else.
    pub async fn fetch_file(&self, url: &str, max_bytes: usize) -> Result<Vec<u8>, FileError> {
        let (_, id) = url.split_once("/relay/media/").ok_or(FileError::Elsewhere)?;
        let id = crate::agents::segment(id).map_err(|_| FileError::Elsewhere)?;
        let (base, token) = self.access();
        let mut response =
            accepted(client()?.get(format!("{base}/relay/media/{id}")).bearer_auth(token).send().await?)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if bytes.len() + chunk.len() > max_bytes {
                return Err(FileError::TooLarge(max_bytes));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Stores a file at the server, and returns the URL for `send_media`.
    pub async fn store_file(&self, bytes: Vec<u8>, mime: &str, filename: &str) -> Result<String, FileError> {
        let (base, token) = self.access();
        let request = client()?.post(format!("{base}/relay/media")).bearer_auth(token).header("content-type", mime);
        let named = request.header("x-media-filename", crate::agents::encoded(filename));
        let stored: Stored = accepted(named.body(bytes).send().await?)?.json().await?;
        Ok(format!("/relay/media/{}", stored.id)) // whatever address the server has for itself
    }
}
