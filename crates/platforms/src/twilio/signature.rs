//! Whether a request comes from Twilio: HMAC-SHA1 over the URL that Twilio calls and the sorted fields of the form. A body
//! of another type is signed by its hash, which is a part of the URL.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::secret::same_bytes;
use serde_json::Value;

use crate::shared::form::{fields_of, first};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("X-Twilio-Signature is missing, or present twice")]
    NoSignature,
    #[error("the body is neither a form nor signed by bodySHA256 in the URL")]
    NoBodyHash,
    #[error("the body does not match bodySHA256 in the URL")]
    OtherBody,
    #[error("the form is not valid UTF-8, or has too many fields")]
    NotAForm,
    #[error(
        "the signature does not match the URL and the form; check the auth_token of the bot, and that the URL at \
         Twilio begins with public_url of this server"
    )]
    Wrong,
}

/// A request as Twilio has signed it.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// As the operator entered it at Twilio, with the query that came.
    pub url: &'a str,
    pub content_type: Option<&'a str>,
    pub signature: Option<&'a str>,
    pub body: &'a [u8],
}

/// The fields of a genuine request.
pub fn verify(auth_token: &str, request: Signed<'_>) -> Result<Vec<(String, String)>, Forged> {
    let given = request.signature.filter(|text| !text.is_empty()).ok_or(Forged::NoSignature)?;
    let mime = request.content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_form = mime.eq_ignore_ascii_case("application/x-www-form-urlencoded") || request.body.is_empty();
    // Names and values are what is signed, so they are decoded first; nothing is made of them before they are verified.
    let fields = if is_form { fields_of(request.body).ok_or(Forged::NotAForm)? } else { Vec::new() };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth_token.as_bytes());
    let form = sorted(&fields);
    let signs = |url: &String| same_bytes(signature_of(&key, url, &form).as_bytes(), given.as_bytes());
    // Twilio signs with or without a port, depending on the product.
    let is_signed = forms_of(request.url).iter().map(signs).fold(false, |any, one| any | one);
    if !is_form {
        check_hash(request.url, request.body)?;
    }
    match (is_signed, is_form) {
        (false, _) => Err(Forged::Wrong),
        (true, true) => Ok(fields),
        (true, false) => Ok(flat_json(request.body)),
    }
}

fn check_hash(url: &str, body: &[u8]) -> Result<(), Forged> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let fields = fields_of(query.as_bytes()).ok_or(Forged::NoBodyHash)?;
    let given = first(&fields, "bodySHA256").ok_or(Forged::NoBodyHash)?;
    let hash = hex::encode(digest::digest(&digest::SHA256, body));
    match same_bytes(hash.as_bytes(), given.as_bytes()) {
        true => Ok(()),
        false => Err(Forged::OtherBody),
    }
}

/// Names in order, each with its different values in order.
fn sorted(fields: &[(String, String)]) -> String {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, value) in fields {
        names.entry(name).or_default().insert(value);
    }
    let pairs = names.iter().flat_map(|(name, values)| values.iter().flat_map(move |value| [*name, *value]));
    pairs.collect()
}

fn signature_of(key: &hmac::Key, url: &str, form: &str) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(url.as_bytes());
    context.update(form.as_bytes());
    STANDARD.encode(context.sign())
}

/// The URL as it is, without a port, and with the port of its scheme.
fn forms_of(url: &str) -> Vec<String> {
    let mut forms = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return forms };
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let port = host.rfind(':').filter(|at| *at > host.rfind(']').unwrap_or(0));
    forms.push(match port {
        Some(at) => format!("{scheme}://{}{path}", &host[..at]),
        None => format!("{scheme}://{host}:{}{path}", if scheme == "https" { 443 } else { 80 }),
    });
    forms
}

/// The fields of a flat object; a body that is none has no fields.
fn flat_json(body: &[u8]) -> Vec<(String, String)> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return Vec::new() };
    let text = |value: Value| match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    fields.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect()
}

/// The signature of a form, as Twilio makes it.
pub fn sign(auth_token: &str, url: &str, fields: &[(String, String)]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, auth_token.as_bytes());
    signature_of(&key, url, &sorted(fields))
}

/// The signature of a body that is a form. `None`: it is none.
pub fn sign_body(auth_token: &str, url: &str, body: &[u8]) -> Option<String> {
    Some(sign(auth_token, url, &fields_of(body)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded; charset=UTF-8";
    /// The example of Twilio's documentation.
    const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
    const BODY: &str =
        "Digits=1234&To=%2B18005551212&From=%2B14158675310&Caller=%2B14158675310&CallSid=CA1234567890ABCDE";
    const SIGNATURE: &str = "GvWf1cFY/Q7PnoempGyD5oXAezc=";

    fn check(url: &str, mime: Option<&str>, signature: Option<&str>, body: &str) -> Result<usize, Forged> {
        let request = Signed { url, content_type: mime, signature, body: body.as_bytes() };
        verify("12345", request).map(|fields| fields.len())
    }

    #[test]
    fn the_example_of_the_documentation_is_genuine() {
        assert_eq!(check(URL, Some(FORM), Some(SIGNATURE), BODY), Ok(5));
        let with_port = URL.replace(".com/", ".com:443/");
        assert_eq!(check(&with_port, Some(FORM), Some(SIGNATURE), BODY), Ok(5));
        let signed = sign("12345", &with_port, &fields_of(BODY.as_bytes()).unwrap());
        assert_eq!(check(URL, Some(FORM), Some(&signed), BODY), Ok(5));
        let turned: Vec<&str> = BODY.split('&').rev().collect();
        assert_eq!(check(URL, Some(FORM), Some(SIGNATURE), &turned.join("&")), Ok(5), "the fields are signed in order");
    }

    #[test]
    fn what_was_changed_is_refused() {
        for (url, body) in [
            ("http://mycompany.com/myapp.php?foo=1&bar=2", BODY.to_owned()),
            ("https://mycompany.com/myapp.php?bar=2&foo=1", BODY.to_owned()),
            ("https://mycompany.com/myapp.php", BODY.to_owned()),
            ("https://mycompany.com:8443/myapp2.php?foo=1&bar=2", BODY.to_owned()),
            (URL, BODY.replace("1234&", "1235&")),
            (URL, format!("{BODY}&More=1")),
            (URL, format!("{BODY}&Digits=5")),
            (URL, BODY.replace("To=", "to=")),
            (URL, String::new()),
        ] {
            assert_eq!(check(url, Some(FORM), Some(SIGNATURE), &body), Err(Forged::Wrong), "{url} {body}");
        }
        assert_eq!(check(URL, Some(FORM), None, BODY), Err(Forged::NoSignature));
        assert_eq!(check(URL, Some(FORM), Some(""), BODY), Err(Forged::NoSignature));
        for signature in ["x", &SIGNATURE[..27], &format!("{SIGNATURE} "), &SIGNATURE.to_lowercase()] {
            assert_eq!(check(URL, Some(FORM), Some(signature), BODY), Err(Forged::Wrong));
        }
        assert_eq!(check(URL, Some(FORM), Some(SIGNATURE), "a=%ff"), Err(Forged::NotAForm));
        assert_eq!(check(URL, Some("application/json"), Some(SIGNATURE), BODY), Err(Forged::NoBodyHash));
        assert_eq!(check(URL, None, Some(SIGNATURE), BODY), Err(Forged::NoBodyHash));
        // A value in another normal form of Unicode is another value.
        let [composed, apart] = ["Body=%C3%A9", "Body=e%CC%81"];
        let signed = sign("12345", URL, &fields_of(composed.as_bytes()).unwrap());
        assert_eq!(check(URL, Some(FORM), Some(&signed), composed), Ok(1));
        assert_eq!(check(URL, Some(FORM), Some(&signed), apart), Err(Forged::Wrong));
    }

    #[test]
    fn a_body_of_json_is_signed_by_its_hash() {
        let url = format!("{URL}&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620");
        let (body, signature) = (r#"{"property": "value", "boolean": true}"#, "a9nBmqA0ju/hNViExpshrM61xv4=");
        let mime = Some("application/json");
        assert_eq!(check(&url, mime, Some(signature), body), Ok(2));
        assert_eq!(check(&url, mime, Some(signature), &body.replace("true", "false")), Err(Forged::OtherBody));
        assert_eq!(check(&url.replace("0a1f", "0a1e"), mime, Some(signature), body), Err(Forged::OtherBody));
        assert_eq!(check(&url, mime, Some(SIGNATURE), body), Err(Forged::Wrong));
    }

    #[test]
    fn several_values_of_a_name_are_signed_in_order_and_once() {
        let fields = fields_of(b"b=2&a=2&a=1&a=2").unwrap();
        assert_eq!(sorted(&fields), "a1a2b2");
        assert_eq!(forms_of("http://[::1]/x"), ["http://[::1]/x", "http://[::1]:80/x"]);
        assert_eq!(forms_of("http://[::1]:8/x?y:z"), ["http://[::1]:8/x?y:z", "http://[::1]/x?y:z"]);
        assert_eq!(forms_of("https://a.example"), ["https://a.example", "https://a.example:443"]);
    }
}
