//! Text token by token, with a KV cache.

use super::{ProgramId, Sampling, Session};
use crate::error::{Error, Result};
use crate::graph::{Attend, Op};
use crate::maybe_async;

/// Continues a text token by token. Keys and values of its tokens stay in a [`KvCache`](crate::models::KvCache), so that each
/// token is computed once.
///
/// The cache is that of the parameters which the session has: after a training step, make a new decoder.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Programs with the tokens that each computes, fewest first.
    programs: Vec<(ProgramId, usize)>,
    /// The tokens whose keys and values are in the cache.
    cached: Vec<u32>,
    /// Tokens that the cache holds.
    room: usize,
}

impl Decoder {
    /// Takes programs of one cache that [`Model::cached_logits`](crate::models::Model::cached_logits) traced: one for a single
    /// token and, so that a long prompt takes few runs, one or more for several.
    ///
    /// # Errors
    /// [`Error::Setting`] for programs of other inputs, and without one for a single token.
    pub fn new(session: &Session, programs: &[ProgramId]) -> Result<Self> {
        let wrong = |message: &str| Err(Error::setting("program", message));
        let (mut found, mut rooms) = (Vec::new(), Vec::new());
        for id in programs {
            let graph = session.plan(*id)?.graph();
            let input =
                |name: &str| graph.inputs().find(|(_, value)| value.name == name).map(|(_, value)| value);
            let cache = graph.nodes.iter().find_map(|node| match node.op {
                Op::CachedAttention(_) => Some(graph.value(node.inputs[Attend::CACHES[0]]).shape.dims()[1]),
                _ => None,
            });
            match (input("x"), cache, input("length").and(input("at")), &graph.outputs[..]) {
                (Some(x), Some(room), Some(_), [_]) => {
                    found.push((*id, x.shape.last()));
                    rooms.push(room);
                }
                _ => {
                    return wrong(
                        "it continues no text: it needs a KV cache, inputs `x`, `length` and `at`, and one output",
                    );
                }
            }
        }
        found.sort_by_key(|(_, tokens)| *tokens);
        match (found.first(), rooms.first()) {
            (Some((_, 1)), Some(&room)) if rooms.iter().all(|other| *other == room) => {
                Ok(Self { programs: found, cached: Vec::new(), room })
            }
            (Some((_, 1)), _) => wrong("the programs of a decoder must have one cache"),
            _ => wrong("a decoder needs a program for a single token"),
        }
    }

    /// Returns the number of tokens of the text that the cache has.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Draws the token after `text`. Tokens that `text` and the text of the last call have in common, from the first on, are
    /// not computed again.
    ///
    /// # Errors
    /// [`Error::Setting`] for an empty text and for one that is longer than the cache; as [`Session::run`] and
    /// [`Sampling::draw`].
    #[maybe_async]
    pub async fn next_token(
        &mut self,
        session: &mut Session,
        text: &[u32],
        sampling: &Sampling,
    ) -> Result<u32> {
        let wrong = |message: String| Err(Error::setting("text", message));
        let Some(known) = text.len().checked_sub(1) else {
            return wrong("an empty text: it must have a token at least".to_owned());
        };
        if text.len() > self.room {
            return wrong(format!(
                "a text of {} tokens for a KV cache of {}: make the cache longer, or leave out tokens",
                text.len(),
                self.room
            ));
        }
        // The last token is computed again: its logits are asked for.
        let common = self.cached.iter().zip(&text[..known]).take_while(|(a, b)| a == b).count();
        self.cached.truncate(common);
        loop {
            let left = &text[self.cached.len()..];
            let enough = self.programs.iter().find(|(_, tokens)| *tokens >= left.len());
            let (id, tokens) = *enough.or(self.programs.last()).expect("a decoder has programs");
            let new = &left[..tokens.min(left.len())];
            let mut padded = new.to_vec();
            padded.resize(tokens, 0);
            session.feed_to(id, "x", &padded).await?;
            session.feed_to(id, "length", &[self.cached.len() as u32]).await?;
            session.feed_to(id, "at", &[new.len() as u32 - 1]).await?;
            session.run(id).await?;
            if new.len() < left.len() {
                self.cached.extend_from_slice(new);
                continue;
            }
            let output = session.plan(id)?.graph().outputs[0].0.clone();
            let token = sampling.draw(&session.output::<f32>(id, &output).await?, text)?;
            self.cached.extend_from_slice(new);
            return Ok(token);
        }
    }
}
