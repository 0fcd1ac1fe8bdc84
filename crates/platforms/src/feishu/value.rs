//! Values of JSON that others wrote.

use serde_json::Value;

/// Empty if the value is absent or not a text.
pub(super) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list_of<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The first of these that is not empty.
pub(super) fn first<'a>(values: impl IntoIterator<Item = &'a str>) -> &'a str {
    values.into_iter().find(|value| !value.is_empty()).unwrap_or_default()
}
