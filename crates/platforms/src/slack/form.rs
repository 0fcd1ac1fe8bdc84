//! `application/x-www-form-urlencoded`: how commands and buttons come, and how queries are written.

/// Fields that are read at most.
const FIELDS_MAX: usize = 64;

/// The first field of this name, decoded. `None`: it is not there, or its text is not valid UTF-8.
pub(super) fn field(form: &[u8], name: &str) -> Option<String> {
    let mut fields = form.split(|byte| *byte == b'&').take(FIELDS_MAX);
    fields.find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = pair.get(at + 1..).unwrap_or_default();
        (decoded(&pair[..at])? == name).then(|| decoded(value))?
    })
}

fn decoded(text: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let escaped = || {
            let digits = text.get(at + 1..at + 3)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        match text[at] {
            b'+' => out.push(b' '),
            b'%' => match escaped() {
                Some(byte) => {
                    out.push(byte);
                    at += 2;
                }
                None => out.push(b'%'),
            },
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).ok()
}

/// A value for a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_the_first_counts() {
        let form = b"a=1&b=x+y%2Fz%C3%A4&a=2&c&=5&d=%ff&e=%zz%2";
        let of = |name| field(form, name);
        assert_eq!((of("a").as_deref(), of("b").as_deref()), (Some("1"), Some("x y/z\u{e4}")));
        assert_eq!((of("c").as_deref(), of("").as_deref()), (Some(""), Some("5")));
        assert_eq!((of("d"), of("e").as_deref(), of("f")), (None, Some("%zz%2"), None));
        let long = "x=1&".repeat(FIELDS_MAX) + "payload=2";
        assert_eq!(field(long.as_bytes(), "payload"), None);
    }

    #[test]
    fn what_is_encoded_is_read_again() {
        for text in ["", "a b", "\u{1f600}&=+%", "https://x.example/?a=1"] {
            let form = format!("v={}", encoded(text));
            assert_eq!(field(form.as_bytes(), "v").as_deref(), Some(text));
        }
    }
}
