//! Parameters and files of a request: from the query, and from a JSON, form or multipart body.

use serde_json::Value;

use super::super::params::{Params, Upload};
use super::http::Request;

pub(super) fn read(request: &Request) -> Result<(Params, Vec<Upload>), &'static str> {
    let mut params = Params::default();
    put_form(&mut params, request.query.as_bytes());
    let mime = request.header("content-type").unwrap_or_default();
    let mut files = Vec::new();
    let kind = mime.split(';').next().unwrap_or_default().trim().to_lowercase();
    match kind.as_str() {
        _ if request.body.is_empty() => {}
        "application/json" => match serde_json::from_slice(&request.body) {
            Ok(Value::Object(fields)) => params.0.extend(fields),
            _ => return Err("Bad Request: can't parse JSON in the request body"),
        },
        "application/x-www-form-urlencoded" => put_form(&mut params, &request.body),
        "multipart/form-data" => {
            let boundary = mime.split_once("boundary=").map(|(_, rest)| rest.split(';').next().unwrap_or_default());
            let boundary = boundary.ok_or("Bad Request: boundary is missing in the multipart body")?.trim_matches('"');
            for part in parts(&request.body, boundary) {
                put_part(&mut params, &mut files, part);
            }
        }
        _ => {}
    }
    Ok((params, files))
}

fn put_form(params: &mut Params, form: &[u8]) {
    for (name, value) in url::form_urlencoded::parse(form) {
        params.0.insert(name.into_owned(), Value::String(value.into_owned()));
    }
}

fn parts<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
    // Every boundary but the first is behind a line break that belongs to it.
    let mark = format!("--{boundary}").into_bytes();
    let mut found = Vec::new();
    let mut from = None;
    let mut at = 0;
    while at + mark.len() <= body.len() {
        if body[at..].starts_with(&mark) && (at == 0 || body[..at].ends_with(b"\r\n")) {
            if let Some(start) = from {
                found.push(&body[start..at.saturating_sub(2).max(start)]);
            }
            at += mark.len();
            if body[at..].starts_with(b"--") {
                break;
            }
            from = Some(at + 2);
        } else {
            at += 1;
        }
    }
    found
}

fn put_part(params: &mut Params, files: &mut Vec<Upload>, part: &[u8]) {
    let Some(end) = part.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return };
    let head = String::from_utf8_lossy(&part[..end]).into_owned();
    let content = &part[end + 4..];
    let mut disposition = "";
    let mut mime = "application/octet-stream";
    for line in head.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.trim().to_lowercase().as_str() {
            "content-disposition" => disposition = value,
            "content-type" => mime = value.trim(),
            _ => {}
        }
    }
    let Some(field) = quoted(disposition, "name") else { return };
    match quoted(disposition, "filename") {
        Some(filename) => {
            files.push(Upload { field, filename, mime: mime.to_owned(), bytes: content.to_vec() });
        }
        None => {
            params.0.insert(field, Value::String(String::from_utf8_lossy(content).into_owned()));
        }
    }
}

/// The value of a parameter of the header, with or without quotation marks.
fn quoted(header: &str, name: &str) -> Option<String> {
    for part in header.split(';') {
        if let Some((known, value)) = part.trim().split_once('=')
            && known == name
        {
            return Some(value.trim_matches('"').to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_may_hold_any_bytes() {
        let body =
            b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n7\r\n--x\r\nContent-Disposition: form-data; \
            name=\"f\"; filename=\"n.bin\"\r\nContent-Type: image/png\r\n\r\n\x00--x\r\n\xff\r\n--x--\r\n";
        let (mut params, mut files) = (Params::default(), Vec::new());
        for part in parts(body, "x") {
            put_part(&mut params, &mut files, part);
        }
        assert_eq!(params.int("a"), Some(7));
        assert_eq!(
            (files[0].field.as_str(), files[0].filename.as_str(), files[0].mime.as_str()),
            ("f", "n.bin", "image/png")
        );
        assert_eq!(files[0].bytes, b"\x00--x\r\n\xff");
    }
}
