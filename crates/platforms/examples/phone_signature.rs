//! Judges signed requests on stdin as the doors of phone numbers do: one JSON object a line in, `true` or `false` a line out.
//! `{"scheme","key","url","content_type","signatures","body"}`, with every signature header that came, and the body in base64.
//! The comparison with the verifiers that others wrote drives it (`tests/vendors/phone_signatures.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::port::platform::RawRequest;
use frontdesk_platforms::{twilio, whatsapp};
use serde_json::Value;

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let text = |name: &str| request[name].as_str();
        let body = STANDARD.decode(text("body").unwrap_or_default()).map_err(io::Error::other)?;
        let key = text("key").unwrap_or_default();
        let signatures = request["signatures"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let headers = signatures.map(|value| ("signature".to_owned(), value.to_owned())).collect();
        let raw = RawRequest { headers, ..RawRequest::default() };
        let signature = raw.only_header("signature");
        let is_genuine = match text("scheme") {
            Some("twilio") => {
                let (url, content_type) = (text("url").unwrap_or_default(), text("content_type"));
                let signed = twilio::signature::Signed { url, content_type, signature, body: &body };
                twilio::signature::verify(key, signed).is_ok()
            }
            Some("hub") => whatsapp::signature::verify(key, signature, &body).is_ok(),
            _ => return Err(io::Error::other("unknown scheme")),
        };
        writeln!(out, "{is_genuine}")?;
    }
    out.flush()
}
