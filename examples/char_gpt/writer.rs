//! Generates text with a trained network, one character after the other.

use std::path::Path;

use wgrad::data::Characters;
use wgrad::exec::{ProgramId, Sampling, Session, read_notes};
use wgrad::models::GptConfig;
use wgrad::{Error, Result};

/// Notes of a weights file that describe its network and characters.
const NOTES: [&str; 5] = ["characters", "context", "layers", "heads", "width"];

/// The description of a network that its weights file must be loaded into.
pub struct Description {
    pub config: GptConfig,
    pub characters: Characters,
}

impl Description {
    /// Returns the notes to save with the weights.
    pub fn notes(&self) -> std::collections::BTreeMap<String, String> {
        let GptConfig { context, layers, heads, width, .. } = self.config;
        let numbers = [context, layers, heads, width].map(|number| number.to_string());
        let values = std::iter::once(self.characters.as_text()).chain(numbers);
        NOTES.map(str::to_owned).into_iter().zip(values).collect()
    }

    /// Reads the description from a weights file of this example.
    pub fn read(file: &str) -> Result<Self> {
        let notes = read_notes(file)?;
        let wrong = |message: String| Error::Weights { path: Path::new(file).to_owned(), message };
        let note = |name: &str| {
            notes
                .get(name)
                .ok_or_else(|| wrong(format!("it has no note `{name}`: char_gpt's own files have one")))
        };
        let number = |name: &str| {
            let text = note(name)?;
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| wrong(format!("its note `{name}` is {text}: not a number that can be used")))
        };
        let characters = Characters::of(note("characters")?);
        let config = GptConfig {
            vocabulary: characters.len(),
            context: number("context")?,
            layers: number("layers")?,
            heads: number("heads")?,
            width: number("width")?,
            dropout: 0.0,
        };
        Ok(Self { config, characters })
    }
}

/// How text is generated.
pub struct Writer {
    pub prompt: String,
    /// Characters to write.
    pub length: usize,
    pub sampling: Sampling,
}

impl Writer {
    /// Returns the prompt followed by the generated text. `program` computes `Sequence::logits_at` of `x [1, context]`
    /// and `at [1]`.
    pub fn write(
        &self,
        session: &mut Session,
        program: ProgramId,
        characters: &Characters,
    ) -> Result<String> {
        let prompt = characters.encode("--prompt", &self.prompt)?;
        let mut ids = prompt.read(0..prompt.len())?;
        for _ in 0..self.length {
            ids.push(session.next_token(program, &ids, &self.sampling)?);
        }
        Ok(characters.decode(&ids))
    }
}
