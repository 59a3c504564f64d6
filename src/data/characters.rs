//! Character-level tokens.

use std::collections::BTreeSet;

use super::Tokens;
use crate::error::{Error, Result};

/// The characters of a text, in the order of their code points; a token is an index into that list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    list: Vec<char>,
}

impl Characters {
    /// Collects the characters of `text`.
    pub fn of(text: &str) -> Self {
        let set: BTreeSet<char> = text.chars().collect();
        Self { list: set.into_iter().collect() }
    }

    /// Returns the number of characters.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns a text with each character once. [`Characters::of`] gives the same characters for it.
    pub fn as_text(&self) -> String {
        self.list.iter().collect()
    }

    /// Encodes a text as tokens. `what` names the text in errors.
    ///
    /// # Errors
    /// [`Error::Data`] with the first character that is not among these, and its line and column.
    pub fn encode(&self, what: &str, text: &str) -> Result<Tokens> {
        let mut ids = Vec::with_capacity(text.len());
        let (mut line, mut column) = (1, 1);
        for character in text.chars() {
            let Ok(id) = self.list.binary_search(&character) else {
                let message = format!(
                    "line {line}, column {column}: {character:?} is not among the {} characters that the model knows",
                    self.list.len()
                );
                return Err(Error::Data { what: what.to_owned(), message });
            };
            ids.push(id as u32);
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        Tokens::new(ids, self.list.len())
    }

    /// Decodes tokens to text; unknown ids become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let one = |id: &u32| self.list.get(*id as usize).copied().unwrap_or(char::REPLACEMENT_CHARACTER);
        ids.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_unknown_characters_are_named() {
        let text = "größe\n≤ 3";
        let characters = Characters::of(text);
        let tokens = characters.encode("t", text).unwrap();
        assert_eq!(characters.decode(&tokens.read(0..tokens.len()).unwrap()), text);
        assert_eq!(Characters::of(&characters.as_text()), characters);
        assert_eq!(characters.decode(&[0, 99]), "\n\u{fffd}");
        let error = characters.encode("prompt", "g\n3x").unwrap_err().to_string();
        assert_eq!(error, "prompt: line 2, column 2: 'x' is not among the 9 characters that the model knows");
    }
}
