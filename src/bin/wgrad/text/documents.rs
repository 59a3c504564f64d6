//! Files of documents.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use wgrad::data::{Dataset, Documents};
use wgrad::{Error, Result};

use super::{Encoded, Language, Message};

/// The forms of a line.
const FORMS: &str = "`text`, `prompt` and `completion`, or `messages`";

/// A document, and the bytes of it that are to be learnt.
struct Document {
    text: String,
    learnt: Vec<Range<usize>>,
    /// Whether it is a text without tokens that mark its beginning and end.
    bare: bool,
}

impl Document {
    fn of(text: String) -> Self {
        Self::learnt_from(0, text)
    }

    /// A text that is learnt from a byte on.
    fn learnt_from(start: usize, text: String) -> Self {
        Self { learnt: std::iter::once(start..text.len()).collect(), text, bare: true }
    }
}

impl Language {
    /// Reads documents in rows of `seq` tokens: one of each line of a file that ends in `.jsonl`, an object with `text`, with
    /// `prompt` and `completion`, or with `messages`; of any other file, its whole text as one.
    ///
    /// # Errors
    /// [`Error::Data`] with the number of a line that is broken, and for a file without anything to learn.
    pub fn documents(&self, path: &Path, seq: usize, vocabulary: usize) -> Result<Documents> {
        let failed = |message: String| Error::Data { what: path.display().to_string(), message };
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        let mut documents = Documents::new(seq, vocabulary)?;
        let lines = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"));
        if lines {
            for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let what = format!("{} line {}", path.display(), i + 1);
                let document = serde_json::from_str(line).map_err(|e| e.to_string());
                let document = document.and_then(|line: Value| self.document(&line));
                let document = document.map_err(|message| Error::Data { what: what.clone(), message })?;
                self.push(&mut documents, &what, &document)?;
            }
        } else {
            self.push(&mut documents, &path.display().to_string(), &Document::of(text))?;
        }
        match documents.is_empty() {
            true => {
                Err(failed("there is nothing to learn: it has no document of two tokens or more".to_owned()))
            }
            false => Ok(documents),
        }
    }

    fn push(&self, documents: &mut Documents, what: &str, document: &Document) -> Result<()> {
        let Encoded { mut ids, bytes } = self.encode(what, &document.text, document.bare)?;
        // Tokens that the tokenizer adds stand for no bytes.
        let of = |token: &Range<usize>| {
            !token.is_empty()
                && document.learnt.iter().any(|part| part.start < token.end && token.start < part.end)
        };
        let mut learnt: Vec<bool> = bytes.iter().map(of).collect();
        let end = self.ends.first().filter(|end| document.bare && ids.last() != Some(end));
        ids.extend(end);
        learnt.extend(end.map(|_| true));
        documents.push_parts(what, &ids, &learnt)
    }

    fn document(&self, line: &Value) -> std::result::Result<Document, String> {
        let text = |name: &str| match &line[name] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            other => Err(format!("`{name}` is {other}, expected a string")),
        };
        match (text("text")?, text("prompt")?, text("completion")?, &line["messages"]) {
            (Some(text), None, None, Value::Null) => Ok(Document::of(text)),
            (None, Some(prompt), Some(completion), Value::Null) => {
                Ok(Document::learnt_from(prompt.len(), prompt + &completion))
            }
            (None, None, None, Value::Array(messages)) => self.answers(messages),
            _ => Err(format!("expected an object with {FORMS}")),
        }
    }

    /// A conversation, of which the assistant's answers are learnt.
    fn answers(&self, messages: &[Message]) -> std::result::Result<Document, String> {
        let render =
            |messages, answer| self.conversation(messages, answer).map_err(|error| error.to_string());
        let text = render(messages, false)?;
        let mut learnt = Vec::new();
        let answers = messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant");
        for (i, _) in answers {
            let (before, after) = (render(&messages[..i], true)?, render(&messages[..=i], false)?);
            if !(after.starts_with(&before) && text.starts_with(&after)) {
                return Err(format!(
                    "the chat template shows message {} in another way where others come after it, so it cannot be learnt \
                     alone; end the conversation there",
                    i + 1
                ));
            }
            learnt.push(before.len()..after.len());
        }
        match learnt.is_empty() {
            true => Err("`messages` has no answer of the role `assistant` to learn".to_owned()),
            false => Ok(Document { text, learnt, bare: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use wgrad::graph::IGNORE;

    use super::*;

    /// A tokenizer of characters, `a` to `z`, space, `$` at the end and `^` at the beginning.
    fn language(name: &str) -> (PathBuf, Language) {
        let folder = std::env::temp_dir().join(format!("wgrad-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let vocabulary: serde_json::Map<String, Value> =
            ('a'..='z').chain(" ^$?".chars()).enumerate().map(|(i, c)| (c.to_string(), i.into())).collect();
        let tokenizer = serde_json::json!({
            "version": "1.0",
            "added_tokens": [
                {"id": 27, "content": "^", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
                {"id": 28, "content": "$", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
            ],
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "^", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"^": {"id": "^", "ids": [27], "tokens": ["^"]}}},
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
        });
        let write = |name: &str, value: &Value| {
            std::fs::write(folder.join(name), value.to_string()).expect("written")
        };
        write("tokenizer.json", &tokenizer);
        let template = "{% for m in messages %}{{ m.role[0] + m.content + '$' }}{% endfor %}{% if add_generation_prompt %}a{% endif %}";
        write(
            "tokenizer_config.json",
            &serde_json::json!({"eos_token": {"content": "$"}, "chat_template": template}),
        );
        let language = Language::open(&folder).expect("a folder");
        (folder, language)
    }

    fn read(language: &Language, folder: &Path, name: &str, text: &str) -> Result<(Vec<u32>, Vec<u32>)> {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        let documents = language.documents(&path, 8, 30)?;
        let batch = documents.batch(&(0..documents.len()).collect::<Vec<_>>())?;
        Ok((batch.u32("x").to_vec(), batch.u32("y").to_vec()))
    }

    #[test]
    fn each_form_of_a_line_learns_what_it_should() {
        const I: u32 = IGNORE;
        let (folder, language) = language("forms");
        let of = |text: &str| read(&language, &folder, "d.jsonl", text).expect("documents");
        // A text: everything, and its end.
        let (x, y) = of(r#"{"text": "abc"}"#);
        assert_eq!((&x[..], &y[..]), (&[27, 0, 1, 2, 0, 0, 0, 0][..], &[0, 1, 2, 28, I, I, I, I][..]));
        let (_, y) = of(r#"{"prompt": "ab", "completion": "cd"}"#);
        assert_eq!(y, [I, I, 2, 3, 28, I, I, I]);
        // Answers of the assistant, with what the template ends them with.
        let (x, y) =
            of(r#"{"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "cd"}]}"#);
        assert_eq!(x, [20, 1, 28, 0, 2, 3, 0, 0]);
        assert_eq!(y, [I, I, I, 2, 3, 28, I, I]);
        let (x, y) = read(&language, &folder, "d.txt", "ab\nc").expect("documents");
        // This tokenizer does not know line breaks.
        assert_eq!((x[..4].to_vec(), y[4]), (vec![27, 0, 1, 29], 28));
        assert_eq!(language.decode(&[0, 1, 28]).expect("a text"), "ab");
        assert!(language.ends(28) && !language.ends(0));
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn broken_lines_are_named() {
        let (folder, language) = language("broken");
        let error = |text: &str| read(&language, &folder, "d.jsonl", text).expect_err("refused").to_string();
        assert!(
            error("{\"text\": \"a\"}\n\n{\"text\": ").contains("d.jsonl line 3: EOF while parsing"),
            "{}",
            error("{")
        );
        assert!(error("{\"text\": 3}").contains("line 1: `text` is 3, expected a string"));
        assert!(error("{\"prompt\": \"a\"}").contains("expected an object with `text`, `prompt`"));
        assert!(error("[1]").contains("expected an object"));
        assert!(error(r#"{"messages": [{"role": "user", "content": "a"}]}"#).contains("no answer"));
        assert!(error("").contains("nothing to learn"));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
