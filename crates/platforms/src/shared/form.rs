//! Forms as browsers and vendors encode them: `application/x-www-form-urlencoded`, in bodies and in queries.

/// More fields than any vendor sends.
const FIELDS_MAX: usize = 1_000;

/// The fields in their order. `None`: a name or value is not valid UTF-8 text, or there are too many of them.
pub(crate) fn fields_of(form: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    for field in form.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
        if fields.len() == FIELDS_MAX {
            return None;
        }
        let end = field.iter().position(|byte| *byte == b'=').unwrap_or(field.len());
        let value = field.get(end + 1..).unwrap_or_default();
        fields.push((decoded(&field[..end])?, decoded(value)?));
    }
    Some(fields)
}

/// The first field of this name.
pub(crate) fn first<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A percent sign without two digits stands for itself.
fn decoded(text: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *first == b'%').filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        bytes.push(match (code, first) {
            (Some(code), _) => code,
            (None, b'+') => b' ',
            (None, other) => *other,
        });
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_once() {
        let fields = fields_of(b"From=%2B1555&Body=a+b%26c%3Dd%25&&empty=&alone&x=1=2&%C3%A4=%e2%82%ac").unwrap();
        let shown: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let wanted = [("From", "+1555"), ("Body", "a b&c=d%"), ("empty", ""), ("alone", ""), ("x", "1=2"), ("ä", "€")];
        assert_eq!(shown, wanted);
        assert_eq!((first(&fields, "x"), first(&fields, "y")), (Some("1=2"), None));
        assert_eq!(fields_of(b"a=%&b=%4&c=%zz&d=%+1").unwrap()[3].1, "% 1");
        assert_eq!(fields_of(b"a=%ff"), None);
        assert_eq!(fields_of("a=1&".repeat(FIELDS_MAX + 1).as_bytes()), None);
        assert_eq!(fields_of(b""), Some(Vec::new()));
    }
}
