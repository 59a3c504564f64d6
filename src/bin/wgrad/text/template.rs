//! Chat templates, in Jinja.

use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, context};
use serde_json::Value;
use wgrad::{Error, Result};

/// A message of a conversation: `role`, `content` and whatever else a template reads.
pub type Message = Value;

/// How a conversation becomes text.
pub struct Template {
    environment: Environment<'static>,
    /// Tokens that begin and end a text.
    tokens: [Option<String>; 2],
}

const NAME: &str = "chat template";

impl Template {
    /// Reads `chat_template.jinja`, or the entry `chat_template` of the tokenizer's settings; `None` if there is neither.
    pub fn open(folder: &Path, settings: &Value, tokens: [Option<String>; 2]) -> Result<Option<Self>> {
        let path = folder.join("chat_template.jinja");
        let failed = |message: String| Error::Data { what: path.display().to_string(), message };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => of_settings(settings),
            Err(error) => return Err(failed(error.to_string())),
        };
        text.map(|text| Self::new(text, tokens).map_err(failed)).transpose()
    }

    fn new(text: String, tokens: [Option<String>; 2]) -> std::result::Result<Self, String> {
        let mut environment = Environment::new();
        // As transformers renders them.
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(|e| described(&e))?,
        );
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> std::result::Result<String, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned(NAME, text).map_err(|e| described(&e))?;
        Ok(Self { environment, tokens })
    }

    /// Returns the text of a conversation; with `answer`, up to where the assistant's answer begins.
    pub fn render(&self, messages: &[Message], answer: bool) -> std::result::Result<String, String> {
        let [bos_token, eos_token] = &self.tokens;
        let template = self.environment.get_template(NAME).map_err(|e| described(&e))?;
        let rendered = template.render(context! {
            messages => Serde(messages),
            add_generation_prompt => answer,
            bos_token => bos_token.as_deref().unwrap_or_default(),
            eos_token => eos_token.as_deref().unwrap_or_default(),
        });
        rendered.map_err(|e| described(&e))
    }
}

fn described(error: &minijinja::Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!(" line {line}"));
    format!("{NAME}{line}: {}", error.detail().map_or_else(|| error.kind().to_string(), str::to_owned))
}

/// The entry is a text, or a list of templates by name.
fn of_settings(settings: &Value) -> Option<String> {
    match &settings["chat_template"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let default = list.iter().find(|entry| entry["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(text: &str, messages: &Value, answer: bool) -> std::result::Result<String, String> {
        let tokens = [Some("<s>".to_owned()), Some("</s>".to_owned())];
        Template::new(text.to_owned(), tokens)?.render(messages.as_array().expect("a list"), answer)
    }

    /// The templates of Qwen and of Llama 2, shortened; the texts are those that transformers 5.24 renders.
    #[test]
    fn templates_render_as_in_transformers() {
        let messages = json!([{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yes."}]);
        let qwen = "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n";
        let text = "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n";
        assert_eq!(rendered(qwen, &messages, false).as_deref(), Ok(text));
        let asked = json!([{"role": "user", "content": "A"}]);
        let text = "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(rendered(qwen, &asked, true).as_deref(), Ok(text));
        let llama = "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}{% endfor %}";
        assert_eq!(rendered(llama, &messages, false).as_deref(), Ok("<s>[INST] Hi [/INST] Yes. </s>"));
        let twice = json!([{"role": "user", "content": "A"}, {"role": "user", "content": "B"}]);
        assert_eq!(
            rendered(llama, &twice, false),
            Err("chat template line 1: Roles must alternate".to_owned())
        );
        assert!(rendered("{% for %}", &twice, false).is_err());
    }

    #[test]
    fn settings_have_one_template_or_a_list() {
        let of = |value: Value| of_settings(&json!({ "chat_template": value }));
        assert_eq!(of(json!("a")).as_deref(), Some("a"));
        let list = json!([{"name": "tool", "template": "b"}, {"name": "default", "template": "c"}]);
        assert_eq!(of(list).as_deref(), Some("c"));
        assert_eq!(of(Value::Null), None);
    }
}
