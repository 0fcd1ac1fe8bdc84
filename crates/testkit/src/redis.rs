//! The private Redis that the test command starts. Tests share it: channels are named for the store's epoch.

/// Names the server: `redis://host:port`.
const SERVER: &str = "FRONTDESK_TEST_REDIS";

pub fn url() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| {
        panic!("{SERVER} is not set; `./scripts/test postgres` starts a private server and prints its address")
    })
}
