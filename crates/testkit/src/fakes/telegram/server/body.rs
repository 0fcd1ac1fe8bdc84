//! Parameters and files of a request: from the query, and from a JSON, form or multipart body.

use serde_json::Value;

use super::super::params::{Params, Upload};
use crate::fakes::serving::http::Request;
use crate::fakes::serving::multipart::{self, Part};

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
            let parts = multipart::read(mime, &request.body);
            for part in parts.ok_or("Bad Request: boundary is missing in the multipart body")? {
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

fn put_part(params: &mut Params, files: &mut Vec<Upload>, part: Part<'_>) {
    match part.filename {
        Some(filename) => {
            files.push(Upload { field: part.field, filename, mime: part.mime, bytes: part.content.to_vec() });
        }
        None => {
            params.0.insert(part.field, Value::String(String::from_utf8_lossy(part.content).into_owned()));
        }
    }
}
