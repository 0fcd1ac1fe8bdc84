//! Files that a message names.

/// A file of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileRef {
    pub(super) key: String,
    pub(super) name: Option<String>,
    /// image, audio, video or file
    pub(super) kind: &'static str,
}

impl FileRef {
    pub(super) fn new(key: &str, name: &str, kind: &'static str) -> Self {
        Self { key: key.to_owned(), name: Some(name.to_owned()).filter(|name| !name.is_empty()), kind }
    }

    /// Feishu does not report the type of a file.
    pub(super) fn mime(&self) -> &'static str {
        match self.kind {
            "image" => "image/jpeg",
            "audio" => "audio/ogg",
            "video" => {
                self.name.as_deref().map(mime_of).filter(|mime| mime.starts_with("video/")).unwrap_or("video/mp4")
            }
            _ => self.name.as_deref().map_or("application/octet-stream", mime_of),
        }
    }
}

/// By the end of a name.
pub(super) fn mime_of(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_lowercase()).unwrap_or_default();
    match end.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "ogg" | "opus" => "audio/ogg",
        "wav" => "audio/x-wav",
        "m4a" => "audio/mp4",
        "aac" => "audio/aac",
        "flac" => "audio/flac",
        "mp4" | "m4v" => "video/mp4",
        "mov" => "video/quicktime",
        "avi" => "video/x-msvideo",
        "mkv" => "video/x-matroska",
        "webm" => "video/webm",
        "3gp" => "video/3gpp",
        "pdf" => "application/pdf",
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "xml" => "text/xml",
        "zip" => "application/zip",
        "doc" => "application/msword",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xls" => "application/vnd.ms-excel",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "ppt" => "application/vnd.ms-powerpoint",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => "application/octet-stream",
    }
}

/// What is found in a message beside its text.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<FileRef>,
}

impl Found {
    /// The same picture may be in a text several times.
    pub(super) fn image(&mut self, key: &str) {
        if !key.is_empty() && self.files.iter().all(|file| file.kind != "image" || file.key != key) {
            self.files.push(FileRef::new(key, "", "image"));
        }
    }
}
