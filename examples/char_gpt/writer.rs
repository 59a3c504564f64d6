//! Generates text with a trained network, one character after the other.

use wgrad::Result;
use wgrad::data::Characters;
use wgrad::exec::{ProgramId, Sampling, Session};

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
