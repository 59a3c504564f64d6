//! Texts token by token, with a KV cache.

use super::pages::{Held, Pages};
use super::{ProgramId, Sampling, Session};
use crate::error::{Error, Result};
use crate::graph::{Attend, Indices, Op};
use crate::maybe_async;

/// Continues texts token by token. Keys and values of their tokens stay in the pages of a
/// [`KvCache`](crate::models::KvCache), so that each token is computed once, and once for all texts that begin alike, as far as
/// they fill pages.
///
/// The cache is that of the parameters which the session has: after a training step, make a new decoder.
#[derive(Clone, Debug)]
pub struct Decoder {
    programs: Vec<Program>,
    pages: Pages,
    /// Tokens that the cache holds of a text.
    room: usize,
    /// Pages that a program takes of a text.
    table: usize,
}

#[derive(Clone, Copy, Debug)]
struct Program {
    id: ProgramId,
    /// Texts, and new tokens of each.
    texts: usize,
    tokens: usize,
}

impl Decoder {
    /// Takes programs that [`Model::cached_logits`](crate::models::Model::cached_logits) traced for one cache: one for a single
    /// token of each text and, so that a long prompt takes few runs, one or more for several.
    ///
    /// # Errors
    /// [`Error::Setting`] for programs of other inputs, and without one for a single token.
    pub fn new(session: &Session, programs: &[ProgramId]) -> Result<Self> {
        let wrong = |message: &str| Err(Error::setting("program", message));
        let (mut found, mut caches) = (Vec::new(), Vec::new());
        for &id in programs {
            let graph = session.plan(id)?.graph();
            let input =
                |name: &str| graph.inputs().find(|(_, value)| value.name == name).map(|(_, value)| value);
            let dims = |name: &str| input(name).map(|value| value.shape.dims());
            let cache = graph.nodes.iter().find_map(|node| match node.op {
                Op::CachedAttention(_) => Some(graph.value(node.inputs[Attend::CACHES[0]]).shape),
                _ => None,
            });
            let most = input("length").and_then(|value| match value.indices {
                Some(Indices::Ids(limit)) => Some(limit),
                _ => None,
            });
            match (dims("x"), dims("pages"), cache, most, dims("at"), &graph.outputs[..]) {
                (Some(&[texts, tokens]), Some(&[_, table]), Some(cache), Some(most), Some(_), [_]) => {
                    found.push(Program { id, texts, tokens });
                    caches.push((cache, most, table));
                }
                _ => {
                    return wrong(
                        "it continues no text: it needs a KV cache, inputs `x`, `pages`, `length` and `at`, and one output",
                    );
                }
            }
        }
        if caches.iter().any(|cache| *cache != caches[0]) {
            return wrong("the programs of a decoder must have one cache");
        }
        if !found.iter().any(|program| program.tokens == 1) {
            return wrong("a decoder needs a program for a single token");
        }
        let (cache, most, table) = caches[0];
        let pages = Pages::new(cache.dims()[0], cache.dims()[1]);
        let room = (most.saturating_sub(1) as usize).min(table * pages.size());
        Ok(Self { programs: found, pages, room, table })
    }

    /// Returns how many of the first tokens of `text` the cache has.
    pub fn cached(&self, text: &[u32]) -> usize {
        self.pages.known(text)
    }

    /// Draws the token after `text`, as [`Decoder::next_tokens`].
    ///
    /// # Errors
    /// As [`Decoder::next_tokens`].
    #[maybe_async]
    pub async fn next_token(
        &mut self,
        session: &mut Session,
        text: &[u32],
        sampling: &Sampling,
    ) -> Result<u32> {
        Ok(self.next_tokens(session, &[(text, sampling)]).await?[0])
    }

    /// Draws the token after each text. Beginnings of texts that the cache has from earlier calls, or from another text of this
    /// one, are not computed again. Where pages lack, those of texts that were not asked for longest are used again.
    ///
    /// # Errors
    /// [`Error::Setting`] for an empty text, one that is longer than the cache takes, and more texts than it has pages for; as
    /// [`Session::run`] and [`Sampling::draw`].
    #[maybe_async]
    pub async fn next_tokens(
        &mut self,
        session: &mut Session,
        texts: &[(&[u32], &Sampling)],
    ) -> Result<Vec<u32>> {
        let wrong = |message: String| Err(Error::setting("text", message));
        if texts.iter().any(|(text, _)| text.is_empty()) {
            return wrong("an empty text: it must have a token at least".to_owned());
        }
        if let Some((text, _)) = texts.iter().find(|(text, _)| text.len() > self.room) {
            return wrong(format!(
                "a text of {} tokens for a KV cache of {}: make the cache longer, or leave out tokens",
                text.len(),
                self.room
            ));
        }
        // The last token is computed again: its logits are asked for.
        let before = |i: usize| &texts[i].0[..texts[i].0.len() - 1];
        self.pages.begin();
        let mut held = Vec::with_capacity(texts.len());
        for i in 0..texts.len() {
            held.push(self.pages.find(before(i)));
            self.pages.hold(&held[i]);
        }
        let mut drawn = vec![None; texts.len()];
        loop {
            let left = |i: &usize| texts[*i].0.len() - held[*i].tokens;
            let mut waiting: Vec<usize> = (0..texts.len()).filter(|i| drawn[*i].is_none()).collect();
            // First those with several tokens left, each to its end: then these are there for others with the same beginning.
            waiting.sort_by_key(|i| left(i) == 1);
            let Some(tokens) = waiting.first().map(left) else { break };
            let program = self.program(tokens, waiting.len());
            waiting.truncate(program.texts);
            for &i in &waiting {
                let again = self.pages.find(before(i));
                if again.tokens > held[i].tokens {
                    let old = std::mem::replace(&mut held[i], again);
                    let unused = |page: &usize| !held.iter().any(|text| text.pages.contains(page));
                    let dropped: Vec<usize> = old.pages.into_iter().filter(unused).collect();
                    self.pages.release(&dropped);
                    self.pages.hold(&held[i]);
                }
                if !self.pages.grow(&mut held[i], texts[i].0.len()) {
                    return wrong(format!(
                        "{} texts for a KV cache of {} pages of {} tokens, and text {i} of {} tokens finds none: make more \
                         pages, or continue fewer texts at once",
                        texts.len(),
                        self.pages.count(),
                        self.pages.size(),
                        texts[i].0.len()
                    ));
                }
            }
            let texts_of = waiting.iter().map(|&i| (texts[i].0, &held[i])).collect::<Vec<_>>();
            self.feed(session, program, &texts_of).await?;
            session.run(program.id).await?;
            let mut logits = Vec::new();
            for (row, &i) in waiting.iter().enumerate() {
                let (text, sampling) = texts[i];
                let start = held[i].tokens;
                let end = text.len().min(start + program.tokens);
                self.pages.fill(&mut held[i], &text[start..end]);
                if end == text.len() {
                    if logits.is_empty() {
                        let output = session.plan(program.id)?.graph().outputs[0].0.clone();
                        logits = session.output::<f32>(program.id, &output).await?;
                    }
                    let classes = logits.len() / program.texts;
                    drawn[i] = Some(sampling.draw(&logits[row * classes..][..classes], text)?);
                }
            }
        }
        Ok(drawn.into_iter().flatten().collect())
    }

    /// Selects the smallest program that computes `tokens` tokens, or else the largest; of several, the smallest for `texts`
    /// texts, or else the largest.
    fn program(&self, tokens: usize, texts: usize) -> Program {
        let lack = |has: usize, wanted: usize| (wanted.saturating_sub(has), has);
        let order = |program: &&Program| (lack(program.tokens, tokens), lack(program.texts, texts));
        *self.programs.iter().min_by_key(order).expect("a decoder has programs")
    }

    /// Feeds the next tokens of `texts`, which have pages for them. Rows of other texts have no pages, so that nothing is stored
    /// of them.
    #[maybe_async]
    async fn feed(&self, session: &mut Session, program: Program, texts: &[(&[u32], &Held)]) -> Result<()> {
        let Program { id, texts: rows, tokens } = program;
        let mut x = vec![0; rows * tokens];
        let mut pages = vec![self.pages.count() as u32; rows * self.table];
        let (mut length, mut at) = (vec![0; rows], vec![0; rows]);
        for (row, &(text, held)) in texts.iter().enumerate() {
            let left = &text[held.tokens..];
            let new = &left[..tokens.min(left.len())];
            x[row * tokens..][..new.len()].copy_from_slice(new);
            for (page, &of) in pages[row * self.table..].iter_mut().zip(&held.pages) {
                *page = of as u32;
            }
            length[row] = held.tokens as u32;
            at[row] = (row * tokens + new.len() - 1) as u32;
        }
        for (name, data) in [("x", &x), ("pages", &pages), ("length", &length), ("at", &at)] {
            session.feed_to(id, name, data).await?;
        }
        Ok(())
    }
}
