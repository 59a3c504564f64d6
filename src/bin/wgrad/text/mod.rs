//! The text side of a folder of Hugging Face: its tokenizer, its chat template, and the documents to learn from.

mod documents;
mod template;
pub mod writer;

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::Tokenizer;
use wgrad::exec::{LoadOptions, Rename, Session};
use wgrad::graph::Params;
use wgrad::models::{Model, ModelOptions};
use wgrad::{Error, Result};

pub use template::Message;
use template::Template;

/// Tokens of a text, and the bytes of the text that each stands for.
pub struct Encoded {
    pub ids: Vec<u32>,
    pub bytes: Vec<Range<usize>>,
}

/// How a model reads and writes text.
pub struct Language {
    tokenizer: Tokenizer,
    template: Option<Template>,
    /// The token that begins a text.
    begin: Option<u32>,
    /// Tokens that end a text; the first one ends documents.
    ends: Vec<u32>,
    folder: PathBuf,
}

impl Language {
    /// Reads `tokenizer.json` of a folder and, where they are there, `tokenizer_config.json`, `generation_config.json`,
    /// `config.json` and `chat_template.jinja`.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let failed = |message: String| Error::Data { what: path.display().to_string(), message };
        if !path.is_file() {
            let help = "a folder of Hugging Face has one; `AutoTokenizer.from_pretrained(..).save_pretrained(..)` writes it";
            return Err(failed(format!("there is no such file: {help}")));
        }
        let mut tokenizer = Tokenizer::from_file(&path).map_err(|e| failed(e.to_string()))?;
        // Rows are cut and filled elsewhere.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|e| failed(e.to_string()))?;
        let [settings, generation, config] =
            ["tokenizer_config.json", "generation_config.json", "config.json"]
                .map(|name| json(&folder.join(name)));
        let (settings, generation, config) = (settings?, generation?, config?);
        let token = |name: &str| {
            let entry = &settings[name];
            entry.as_str().or(entry["content"].as_str()).map(str::to_owned)
        };
        let ids = |value: &Value| match value {
            Value::Array(list) => list.iter().filter_map(Value::as_u64).collect(),
            one => one.as_u64().into_iter().collect::<Vec<_>>(),
        };
        let named = token("eos_token").and_then(|token| tokenizer.token_to_id(&token)).map(u64::from);
        let mut ends: Vec<u32> = Vec::new();
        for id in
            named.into_iter().chain(ids(&generation["eos_token_id"])).chain(ids(&config["eos_token_id"]))
        {
            // A config may name a token that the tokenizer does not have.
            let known = u32::try_from(id).ok().filter(|id| tokenizer.id_to_token(*id).is_some());
            ends.extend(known.filter(|id| !ends.contains(id)));
        }
        let template = Template::open(folder, &settings, [token("bos_token"), token("eos_token")])?;
        let begin = token("bos_token").and_then(|token| tokenizer.token_to_id(&token));
        Ok(Self { tokenizer, template, begin, ends, folder: folder.to_owned() })
    }

    /// Returns the tokens of a text; with `special`, those that the tokenizer adds around a text as well.
    pub fn encode(&self, what: &str, text: &str, special: bool) -> Result<Encoded> {
        let encoding = self
            .tokenizer
            .encode(text, special)
            .map_err(|e| Error::Data { what: what.to_owned(), message: e.to_string() })?;
        let bytes = encoding.get_offsets().iter().map(|&(start, end)| start..end).collect();
        Ok(Encoded { ids: encoding.get_ids().to_vec(), bytes })
    }

    /// Returns the text of tokens, without special ones.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, true).map_err(|e| self.failed(e.to_string()))
    }

    /// Whether a token ends a text.
    pub fn ends(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Returns the tokens that a text begins with: a prompt as it is, or as the question of a conversation.
    pub fn prompt(&self, prompt: &str, chat: bool) -> Result<Vec<u32>> {
        let text = match chat {
            true => &self.conversation(&[serde_json::json!({"role": "user", "content": prompt})], true)?,
            false => prompt,
        };
        let ids = self.encode("--prompt", text, !chat)?.ids;
        Ok(if ids.is_empty() { self.begin.into_iter().collect() } else { ids })
    }

    /// Returns the text of a conversation; with `answer`, up to where the assistant's answer begins.
    fn conversation(&self, messages: &[Message], answer: bool) -> Result<String> {
        let Some(template) = &self.template else {
            return Err(self.failed(
                "it has no chat template, which `messages` need; give `prompt` and `completion`".to_owned(),
            ));
        };
        template.render(messages, answer).map_err(|message| self.failed(message))
    }

    fn failed(&self, message: String) -> Error {
        Error::Data { what: self.folder.display().to_string(), message }
    }
}

/// Tokens of a row of text, unless the command line says otherwise or the model has fewer.
const SEQ: usize = 512;

/// Returns how many tokens of text the model of a folder sees at once: as many as asked for, or [`SEQ`].
pub fn seq(folder: &Path, asked: Option<usize>) -> Result<usize> {
    let own = || Ok(Model::open(Params::new(0), folder, &ModelOptions::default())?.inputs.min(SEQ));
    asked.map_or_else(own, Ok)
}

/// Reads the weights of a folder into a session of its model.
pub fn load(session: &mut Session, model: &Model, folder: &Path) -> Result<()> {
    let options = LoadOptions { rename: Rename::By(model.rename()), ..LoadOptions::default() };
    session.load_with(folder, &options).map(drop)
}

/// Returns the content of a file; `null` if there is none.
fn json(path: &Path) -> Result<Value> {
    let failed = |message: String| Error::Data { what: path.display().to_string(), message };
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| failed(format!("damaged: {e}"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(failed(error.to_string())),
    }
}
