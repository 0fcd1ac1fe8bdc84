//! Bodies of type multipart/form-data.

/// One part: its field, and the name and type of a file where it is one.
pub(in crate::fakes) struct Part<'a> {
    pub(in crate::fakes) field: String,
    pub(in crate::fakes) filename: Option<String>,
    pub(in crate::fakes) mime: String,
    pub(in crate::fakes) content: &'a [u8],
}

/// `mime` is the whole header; `None` if it names no boundary.
pub(in crate::fakes) fn read<'a>(mime: &str, body: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let (_, rest) = mime.split_once("boundary=")?;
    let boundary = rest.split(';').next().unwrap_or_default().trim_matches('"');
    Some(pieces(body, boundary).into_iter().filter_map(part).collect())
}

fn pieces<'a>(body: &'a [u8], boundary: &str) -> Vec<&'a [u8]> {
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

fn part(piece: &[u8]) -> Option<Part<'_>> {
    let end = piece.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&piece[..end]).into_owned();
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
    let filename = quoted(disposition, "filename");
    Some(Part { field: quoted(disposition, "name")?, filename, mime: mime.to_owned(), content: &piece[end + 4..] })
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
        let parts = read("multipart/form-data; boundary=x", body).unwrap();
        assert_eq!((parts[0].field.as_str(), parts[0].content), ("a", &b"7"[..]));
        assert_eq!((parts[1].filename.as_deref(), parts[1].mime.as_str()), (Some("n.bin"), "image/png"));
        assert_eq!(parts[1].content, b"\x00--x\r\n\xff");
    }
}
