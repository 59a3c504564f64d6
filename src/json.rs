//! JSON values and text without a library, for pages, traces and metrics.

use std::fmt;

/// A JSON value. Objects keep the order of their entries, so that equal reports have equal text.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A count, such as bytes.
    Int(u64),
    /// A measurement. NaN and infinities are written as `null`, because JSON has neither.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Creates an object from its entries.
    pub fn object<K: Into<String>>(entries: impl IntoIterator<Item = (K, Json)>) -> Self {
        Self::Object(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// Creates an array from its elements.
    pub fn list(items: impl IntoIterator<Item = impl Into<Json>>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    /// Returns the value of a key, if this is an object with that key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(entries) => entries.iter().find(|(other, _)| other == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl From<u64> for Json {
    fn from(n: u64) -> Self {
        Self::Int(n)
    }
}

impl From<usize> for Json {
    fn from(n: usize) -> Self {
        Self::Int(n as u64)
    }
}

impl From<f64> for Json {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Writes quoted text. Also escapes `<`, so that JSON can be embedded in a page's script.
fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    use fmt::Write;
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '<' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", c as u32)?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

fn joined<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        one(f, item)?;
    }
    Ok(())
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) if x.is_finite() => write!(f, "{x}"),
            Self::Float(_) => f.write_str("null"),
            Self::Text(text) => quoted(f, text),
            Self::List(items) => {
                f.write_str("[")?;
                joined(f, items, |f, item| item.fmt(f))?;
                f.write_str("]")
            }
            Self::Object(entries) => {
                f.write_str("{")?;
                joined(f, entries, |f, (key, value)| {
                    quoted(f, key)?;
                    f.write_str(":")?;
                    value.fmt(f)
                })?;
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_non_finite_numbers_are_null() {
        let value = Json::object([
            ("a \"b\"\n\u{1}", Json::list(["</script>", "\\"])),
            ("n", Json::list([f64::NAN, f64::INFINITY, 0.5])),
            ("none", None::<u64>.into()),
            ("bytes", u64::MAX.into()),
        ]);
        assert_eq!(
            value.to_string(),
            r#"{"a \"b\"\n\u0001":["\u003c/script>","\\"],"n":[null,null,0.5],"none":null,"bytes":18446744073709551615}"#
        );
        assert_eq!(value.get("bytes"), Some(&Json::Int(u64::MAX)));
    }
}
