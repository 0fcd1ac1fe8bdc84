//! Runs the fake server until standard input is closed. The only line that it prints is JSON with its `base_url` and its
//! credentials.

use std::io::{Write as _, copy, sink, stdin, stdout};

use frontdesk_testkit::fakes::whatsapp;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = whatsapp::FakeWhatsApp::new().serve().await?;
    let mut out = stdout();
    let line = serde_json::json!({ "base_url": server.base_url, "phone_number_id": whatsapp::NUMBER_ID,
        "access_token": whatsapp::TOKEN, "app_secret": whatsapp::APP_SECRET });
    writeln!(out, "{line}")?;
    out.flush()?;
    tokio::task::spawn_blocking(|| copy(&mut stdin().lock(), &mut sink())).await??;
    Ok(())
}
