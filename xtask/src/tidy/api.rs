//! Compares the API description with the router: all routes are described, nothing else is, and all references resolve.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use super::source::words;

pub(super) const MAIN_ROUTER: &str = "crates/frontdesk/src/edge/mod.rs";
pub(super) const AGENTS_ROUTER: &str = "crates/frontdesk/src/edge/agents/mod.rs";
pub(super) const ADMIN_ROUTER: &str = "crates/frontdesk/src/edge/admin.rs";
pub(super) const DOCUMENT: &str = "crates/frontdesk/src/edge/openapi.json";
const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

type Route = (String, String);

/// `routers`: the file, the path it is nested under, and its text.
pub(super) fn check(routers: &[(&str, &str, &str)], document: &str) -> Vec<Finding> {
    let document: Value = match serde_json::from_str(document) {
        Ok(document) => document,
        Err(error) => return vec![Finding::new(DOCUMENT, error.line(), format!("not JSON: {error}"), "fix the JSON")],
    };
    let described = described(&document);
    let mut served = BTreeSet::new();
    let mut findings = Vec::new();
    for (file, prefix, text) in routers {
        for (line, (path, method)) in routes(text) {
            let route = (format!("{prefix}{path}"), method);
            if !described.contains(&route) {
                let what = format!("{} {} is not described", route.1.to_uppercase(), route.0);
                findings.push(Finding::new(file, line, what, format!("add it to {DOCUMENT}")));
            }
            served.insert(route);
        }
    }
    for (path, method) in described.difference(&served) {
        let what = format!("{} {path} is described but not served", method.to_uppercase());
        findings.push(Finding::new(DOCUMENT, 1, what, "remove it there, or add the route"));
    }
    for reference in references(&document) {
        let pointer = reference.strip_prefix('#').unwrap_or(&reference);
        if document.pointer(pointer).is_none() {
            findings.push(Finding::new(DOCUMENT, 1, format!("{reference} does not resolve"), "add its target"));
        }
    }
    findings
}

/// `.route("/path", get(a).post(b))` with its line, also where it is broken over several lines.
fn routes(text: &str) -> Vec<(usize, Route)> {
    let mut found = Vec::new();
    for (at, opening) in text.match_indices(".route(") {
        let Some(call) = text[at + opening.len()..].trim_start().strip_prefix('"') else { continue };
        let Some((path, rest)) = call.split_once('"') else { continue };
        let line = text[..at].matches('\n').count() + 1;
        let handlers = &rest[..end_of_call(rest)];
        let calls = |at: usize, word: &str| handlers[at + word.len()..].starts_with('(');
        let named = words(handlers).into_iter().filter(|(at, word)| METHODS.contains(word) && calls(*at, word));
        found.extend(named.map(|(_, method)| (line, (path.to_owned(), method.to_owned()))));
    }
    found
}

fn end_of_call(rest: &str) -> usize {
    let mut depth = 1usize;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn described(document: &Value) -> BTreeSet<Route> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flat_map(|item| item.keys());
        methods.filter(|name| METHODS.contains(&name.as_str())).map(move |name| (path.clone(), name.clone()))
    });
    operations.collect()
}

fn references(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).map(str::to_owned);
            fields.values().flat_map(references).chain(own).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_and_description_must_agree() {
        let router = "Router::new()\n    .route(\"/a\", get(x::get_all).post(y))\n    .route(\n        \"/b/{id}\",\n        delete(z),\n    )\n";
        let good = r#"{"paths":{"/v1/a":{"get":{},"post":{}},"/v1/b/{id}":{"parameters":[],"delete":{}}}}"#;
        let routers = [("edge.rs", "/v1", router)];
        assert_eq!(check(&routers, good), []);
        let missing = check(&routers, r#"{"paths":{"/v1/a":{"get":{},"post":{}}}}"#);
        assert_eq!((missing.len(), missing[0].line, missing[0].file.as_str()), (1, 3, "edge.rs"));
        let surplus = check(&[("edge.rs", "", "")], r#"{"paths":{"/x":{"get":{}}}}"#);
        assert!(surplus[0].what.contains("GET /x is described but not served"));
        let astray = check(&[], r##"{"a":[{"$ref":"#/components/schemas/B"}]}"##);
        assert!(astray[0].what.contains("does not resolve"));
        assert_eq!(check(&[], "{").len(), 1);
    }
}
