//! Generates text with a trained network, one character after the other. Each is drawn from the network's
//! prediction for the position after the last characters.

use std::path::Path;

use wgrad::data::Characters;
use wgrad::exec::{ProgramId, Session, read_notes};
use wgrad::models::GptConfig;
use wgrad::{Error, Result, random};

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
    /// 1 samples from the network's distribution, lower values prefer likely characters, and 0 always takes
    /// the likeliest.
    pub temperature: f32,
    pub seed: u64,
}

impl Writer {
    /// Returns the prompt followed by the generated text. The network sees the last `context` characters.
    /// `program` has input `ids [1, context]` and output `logits`.
    pub fn write(
        &self,
        session: &mut Session,
        program: ProgramId,
        description: &Description,
    ) -> Result<String> {
        let Description { config, characters } = description;
        let prompt = characters.encode("--prompt", &self.prompt)?;
        let mut ids = prompt.read(0..prompt.len())?;
        if ids.is_empty() {
            return Err(Error::setting(
                "command line",
                "an empty prompt: it must have a character at least".to_owned(),
            ));
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            let temperature = self.temperature;
            return Err(Error::setting(
                "command line",
                format!("--temperature {temperature}: it must be 0 or more"),
            ));
        }
        let key = random::key(self.seed, "writer");
        for i in 0..self.length as u64 {
            // Attention is causal: the padding after the last character changes nothing.
            let mut window = ids[ids.len().saturating_sub(config.context)..].to_vec();
            let last = window.len() - 1;
            window.resize(config.context, 0);
            session.feed_to(program, "ids", &window)?;
            session.run(program)?;
            let logits = session.output::<f32>(program, "logits")?;
            let row = &logits[last * config.vocabulary..(last + 1) * config.vocabulary];
            ids.push(draw(row, self.temperature, random::uniform(key, i)));
        }
        Ok(characters.decode(&ids))
    }
}

/// Returns an index of `logits`, sampled from their softmax with a number in [0, 1).
fn draw(logits: &[f32], temperature: f32, number: f32) -> u32 {
    let largest = logits.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    let (likeliest, top) = largest.unwrap_or((0, 0.0));
    let weights: Vec<f64> =
        logits.iter().map(|x| f64::from((x - top) / temperature.max(f32::MIN_POSITIVE)).exp()).collect();
    let mut left = f64::from(number) * weights.iter().sum::<f64>();
    let chosen = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    chosen.unwrap_or(likeliest) as u32
}
