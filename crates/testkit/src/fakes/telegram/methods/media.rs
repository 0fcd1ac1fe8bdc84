//! Messages with files, albums, and the way to download a file.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::files::StoredFile;
use super::super::markup::{Formatted, utf16_len};
use super::super::shapes;
use super::super::state::State;
use super::Call;
use super::send::formatted_by;

const MAX_CAPTION: usize = 1_024;
const MAX_PHOTO_BYTES: usize = 10 * 1024 * 1024;
const MAX_UPLOAD_BYTES: usize = 50 * 1024 * 1024;
/// Larger files cannot be downloaded by bots.
const MAX_DOWNLOAD_BYTES: u64 = 20 * 1024 * 1024;

/// The content of a message with a new file. A photo is kept in three sizes.
pub(in super::super) fn content(
    state: &mut State,
    kind: &str,
    name: Option<&str>,
    mime: &str,
    bytes: Bytes,
    given: &Value,
) -> Map<String, Value> {
    if kind != "photo" {
        let file = state.files.add(kind, name, mime, bytes);
        return shapes::media(&file, given);
    }
    let sizes: Vec<StoredFile> = (0..3).map(|_| state.files.add(kind, None, mime, bytes.clone())).collect();
    [("photo".to_owned(), shapes::photo(&sizes))].into_iter().collect()
}

pub(super) fn checked_caption(call: &Call<'_>) -> Result<Formatted, ApiError> {
    let formatted = call.formatted("caption", "caption_entities")?;
    check_caption(formatted)
}

fn check_caption(formatted: Formatted) -> Result<Formatted, ApiError> {
    if utf16_len(&formatted.text) > MAX_CAPTION {
        return Err(ApiError::bad("message caption is too long"));
    }
    Ok(formatted)
}

/// A file by upload, by id or by URL. Nothing is fetched: the content of a URL is the URL itself.
fn file(call: &mut Call<'_>, kind: &str, field: &str, source: Option<&str>, given: &Value) -> Answer {
    let attached = source.and_then(|text| text.strip_prefix("attach://"));
    let part = attached.unwrap_or(field);
    if let Some(upload) = call.files.iter().find(|upload| upload.field == part) {
        let limit = if kind == "photo" { MAX_PHOTO_BYTES } else { MAX_UPLOAD_BYTES };
        match upload.bytes.len() {
            0 => return Err(ApiError::bad("file must be non-empty")),
            size if size > MAX_UPLOAD_BYTES => return Err(ApiError::new(413, "Request Entity Too Large")),
            size if size > limit => return Err(ApiError::bad("PHOTO_INVALID_DIMENSIONS")),
            _ => {}
        }
        let bytes = Bytes::from(upload.bytes.clone());
        return Ok(content(call.state, kind, Some(&upload.filename), &upload.mime, bytes, given).into());
    }
    let Some(source) = source.filter(|text| !text.is_empty() && attached.is_none()) else {
        return Err(ApiError::bad(format!("there is no {kind} in the request")));
    };
    if source.starts_with("http://") || source.starts_with("https://") {
        let url = url::Url::parse(source).map_err(|_| ApiError::bad("wrong HTTP URL specified"))?;
        let name = url.path_segments().and_then(|mut parts| parts.next_back()).filter(|name| !name.is_empty());
        let bytes = Bytes::from(source.to_owned());
        return Ok(content(call.state, kind, name.or(Some("file")), mime(kind), bytes, given).into());
    }
    let known = call.state.files.get(source).cloned();
    let known = known.ok_or_else(|| ApiError::bad("wrong file identifier/HTTP URL specified"))?;
    if known.kind != kind {
        let text = format!("can't use file of type {} as {}", named(&known.kind), named(kind));
        return Err(ApiError::bad(text));
    }
    if kind == "photo" {
        let sizes = [known.clone(), known.clone(), known];
        return Ok(json!({"photo": shapes::photo(&sizes)}));
    }
    Ok(shapes::media(&known, given).into())
}

fn named(kind: &str) -> String {
    let mut letters = kind.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub(in super::super) fn mime(kind: &str) -> &'static str {
    match kind {
        "photo" => "image/jpeg",
        "video" | "animation" => "video/mp4",
        "voice" => "audio/ogg",
        "audio" => "audio/mpeg",
        "sticker" => "image/webp",
        _ => "application/octet-stream",
    }
}

fn fields(made: Value) -> Map<String, Value> {
    if let Value::Object(fields) = made { fields } else { Map::new() }
}

pub(super) fn one(call: &mut Call<'_>, kind: &str) -> Answer {
    let caption = if kind == "sticker" { Formatted::default() } else { checked_caption(call)? };
    let key = call.writable()?;
    let source = call.params.text(kind);
    let numbers = ["duration", "width", "height"];
    let mut given: Map<String, Value> =
        numbers.into_iter().filter_map(|name| Some((name.to_owned(), call.params.int(name)?.into()))).collect();
    let texts = ["performer", "title", "emoji"];
    given.extend(texts.into_iter().filter_map(|name| Some((name.to_owned(), call.params.text(name)?.into()))));
    let made = file(call, kind, kind, source.as_deref(), &Value::Object(given))?;
    let mut content = fields(made);
    call.put_text(&mut content, "caption", &caption);
    call.deliver(key, content)
}

pub(super) fn album(call: &mut Call<'_>) -> Answer {
    let items = call.params.json("media")?.ok_or_else(|| ApiError::bad("parameter \"media\" is required"))?;
    let items = items.as_array().cloned().ok_or_else(|| ApiError::bad("expected an Array of InputMedia"))?;
    match items.len() {
        0 => return Err(ApiError::bad("there are no messages to send")),
        11.. => return Err(ApiError::bad("too many messages to send as an album")),
        _ => {}
    }
    let key = call.writable()?;
    let mut contents = Vec::new();
    for item in &items {
        let kind = item["type"].as_str().unwrap_or_default();
        if !matches!(kind, "photo" | "video" | "audio" | "document") {
            return Err(ApiError::bad("can't parse InputMedia: Field \"type\" must be a valid type of media"));
        }
        let caption = item["caption"].as_str().unwrap_or_default();
        let parsed = formatted_by(caption, item["parse_mode"].as_str(), item.get("caption_entities"))?;
        let caption = check_caption(parsed)?;
        let made = file(call, kind, "", item["media"].as_str(), item)?;
        let mut content = fields(made);
        call.put_text(&mut content, "caption", &caption);
        contents.push(content);
    }
    let group = call.state.number().to_string();
    let mut sent = Vec::new();
    for mut content in contents {
        if items.len() > 1 {
            content.insert("media_group_id".into(), group.as_str().into());
        }
        sent.push(call.deliver(key, content)?);
    }
    Ok(Value::Array(sent))
}

pub(super) fn get_file(call: &Call<'_>) -> Answer {
    let id = call.params.some_text("file_id").ok_or_else(|| ApiError::bad("file_id not specified"))?;
    let file = call.state.files.get(&id).ok_or_else(|| ApiError::bad("invalid file_id"))?;
    if file.size > MAX_DOWNLOAD_BYTES {
        return Err(ApiError::bad("file is too big"));
    }
    Ok(json!({"file_id": file.file_id, "file_unique_id": file.unique_id, "file_size": file.size,
        "file_path": file.path}))
}
