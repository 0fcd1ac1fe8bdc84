//! Judges requests on stdin as the door for Feishu does: one JSON object a line in,
//! `{"encrypt_key","verification_token","now_s","headers":[[name,value]],"body"}` with the body in base64; a line out is the
//! payload of the request as JSON, or `null`. The comparison with the vendor's own library drives it
//! (`tests/vendors/feishu_signatures.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::port::platform::{Bot, RawRequest};
use frontdesk_platforms::feishu::envelope::open;
use frontdesk_wire::Secret;
use serde_json::Value;

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let given: Value = serde_json::from_str(&line?)?;
        let body = STANDARD.decode(given["body"].as_str().unwrap_or_default()).map_err(io::Error::other)?;
        let secrets = ["encrypt_key", "verification_token"]
            .map(|name| (name.to_owned(), Secret::new(given[name].as_str().unwrap_or_default())));
        let bot = Bot::new("b", None, [].into(), secrets.into());
        let request = RawRequest {
            door: "/feishu/{bot}",
            headers: serde_json::from_value(given["headers"].clone())?,
            body: body.into(),
            now_ms: given["now_s"].as_u64().unwrap_or_default().saturating_mul(1_000),
            ..RawRequest::default()
        };
        writeln!(out, "{}", open(&bot, &request).unwrap_or(Value::Null))?;
    }
    out.flush()
}
