//! Where the credentials of a bot may be sent.

/// Whether a URL is at a host of the vendor, or below the address that the operator set instead of it.
pub(crate) fn is_of_vendor(url: &str, own_base: Option<&str>, is_host: impl Fn(&str) -> bool) -> bool {
    if let Some(base) = own_base {
        let rest = url.strip_prefix(base.trim_end_matches('/'));
        return rest.is_some_and(|rest| rest.starts_with('/'));
    }
    let host = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#', '\\']).next());
    let is_plain = |host: &str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    host.is_some_and(|host| is_plain(host) && is_host(host))
}
