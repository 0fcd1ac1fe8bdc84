//! Reads the files that a server leaves on disk.

use std::path::Path;

pub fn holds(bytes: &[u8], words: &str) -> bool {
    bytes.windows(words.len()).any(|window| window == words.as_bytes())
}

/// All files below a folder, except those that are meant to hold a secret.
pub fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !["admin.token", "master.key"].contains(&name.as_str()) {
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
    found
}
