//! `wgrad generate`: lets a language model of a folder of Hugging Face write.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use wgrad::compile::Forward;
use wgrad::dtype::{DType, Precision};
use wgrad::exec::{Debug, Decoder, ProgramId, Sampling, Session};
use wgrad::graph::{LoraConfig, ParamGroup, Params};
use wgrad::models::{CacheOptions, KvCache, Model, ModelOptions};
use wgrad::{Bytes, Error, Result};

use crate::print;
use crate::text::{Language, load, writer};

#[derive(clap::Args)]
pub struct Options {
    /// Folder of Hugging Face, with config.json, tokenizer.json and weights.
    folder: PathBuf,
    /// What the text begins with; several, each in its own `--prompt`, are continued together.
    #[arg(long, value_name = "TEXT", default_values_t = [String::new()])]
    prompt: Vec<String>,
    /// Texts to write from each prompt. The first is drawn with `--seed`, each other with the seed of the one before it plus 1.
    #[arg(long, value_name = "TEXTS", default_value = "1")]
    samples: NonZeroUsize,
    /// Ask the prompt as a user's question, by the chat template of the folder.
    #[arg(long)]
    chat: bool,
    /// Folder of an adapter in PEFT's layout, such as finetune writes.
    #[arg(long, value_name = "FOLDER")]
    adapters: Option<PathBuf>,
    /// Tokens of a prompt and what is written after it, which the KV cache holds; by default as many as these can be.
    #[arg(long, value_name = "TOKENS")]
    seq: Option<usize>,
    /// Storage format of the KV cache: f32, f16, bf16 or int8, which takes models with heads of multiples of 64 elements.
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = cache_format)]
    cache: DType,
    /// Storage format of the model's matrices: f32, f16, bf16, int8, int4 or nf4.
    #[arg(long, value_name = "FORMAT", value_parser = crate::model::frozen_storage)]
    weights: Option<wgrad::dtype::FrozenStorage>,
    #[command(flatten)]
    writer: writer::Options,
    #[command(flatten)]
    device: crate::device::Options,
}

/// Most tokens of a prompt that are computed at once.
const AT_ONCE: usize = 256;

pub fn number_format(text: &str) -> std::result::Result<DType, String> {
    let known = [DType::F32, DType::F16, DType::BF16];
    known.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| "f32, f16 or bf16".to_owned())
}

fn cache_format(text: &str) -> std::result::Result<DType, String> {
    match text {
        "int8" => Ok(DType::Uint8),
        float => number_format(float).map_err(|_| "f32, f16, bf16 or int8".to_owned()),
    }
}

/// Runs the command. Unless `quiet`, it says on stderr what is created, before the weights are read.
pub fn run(options: &Options, quiet: bool) -> Result<()> {
    options.writer.check()?;
    let language = Language::open(&options.folder)?;
    let prompts = options
        .prompt
        .iter()
        .map(|prompt| language.prompt(prompt, options.chat))
        .collect::<Result<Vec<_>>>()?;
    let samples = options.samples.get();
    let params = Params::new(0);
    if let Some(adapters) = &options.adapters {
        params.adapt(&LoraConfig { base: options.weights, ..LoraConfig::open(adapters)? })?;
    }
    let model = Model::open(params, &options.folder, &ModelOptions::default())?;
    if options.adapters.is_none() && options.weights.is_some() {
        let group = ParamGroup { frozen: true, storage: options.weights, ..ParamGroup::default() };
        model.params().set_group("*", group)?;
    }
    let asked = prompts.iter().map(Vec::len).max().unwrap_or_default();
    let room_after = |prompt: usize| options.seq.unwrap_or(prompt + options.writer.length);
    let room = room_after(asked);
    let pages = prompts.iter().map(|prompt| pages_for(prompt.len(), samples, room_after(prompt.len()))).sum();
    let cache = model.kv_cache(&CacheOptions { tokens: room, pages: Some(pages), dtype: options.cache })?;
    let device = options.device.open()?;
    let limits = options.device.limits(&device, Precision::F32)?;
    let of = |sizes: [usize; 2]| {
        Forward::trace(model.params(), "logits", |trace| model.cached_logits(trace, &cache, sizes))?
            .plan(&limits)
    };
    let texts: Vec<Vec<u32>> =
        prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, samples)).collect();
    // Prompts of one token need no other program than the rest of the texts.
    let mut sizes = vec![[texts.len(), 1]];
    if asked > 1 {
        sizes.push([1, asked.min(AT_ONCE)]);
    }
    let plans = sizes.into_iter().map(of).collect::<Result<Vec<_>>>()?;
    let mut session = Session::with_plans(&device, &plans.iter().collect::<Vec<_>>(), Debug::default())?;
    if !quiet {
        let (all, own) = (Bytes(session.device_bytes()), Bytes(cache.bytes()));
        let size = match texts.len() {
            1 => format!("{room} tokens"),
            _ => format!("{} pages of {} tokens", cache.pages(), KvCache::PAGE),
        };
        eprintln!("{all} are created on the device, {own} of them for a KV cache of {size}");
    }
    let mut decoder = Decoder::new(&session, &(0..plans.len()).map(ProgramId).collect::<Vec<_>>())?;
    load(&mut session, &model, &options.folder)?;
    if let Some(adapters) = &options.adapters {
        session.load_adapter(adapters)?;
    }
    let show = |text: &str| {
        print!("{text}");
        print::end().map_err(Error::Internal)
    };
    let count = texts.len();
    let head = |i: usize| {
        let prompt = if options.chat { "" } else { &options.prompt[i / samples] };
        let number = if count > 1 { format!("==> {} of {count} <==\n", i + 1) } else { String::new() };
        show(&(number + prompt))
    };
    // Texts are shown one after the other, the first as it is written.
    let mut pieces: Vec<(String, bool)> = vec![(String::new(), false); count];
    let mut shown = 0;
    head(0)?;
    // The decoder refuses a prompt that is too long.
    let next = |texts: &[(&[u32], &Sampling)]| decoder.next_tokens(&mut session, texts);
    options.writer.write(&language, &texts, room, next, |i, new| {
        match new {
            Some(new) => pieces[i].0.push_str(new),
            None => pieces[i].1 = true,
        }
        while let Some((piece, ended)) =
            pieces.get_mut(shown).filter(|(piece, ended)| *ended || !piece.is_empty())
        {
            show(&std::mem::take(piece))?;
            if !*ended {
                break;
            }
            show("\n")?;
            shown += 1;
            if shown < count {
                head(shown)?;
            }
        }
        Ok(())
    })
}

/// Pages of a KV cache for texts of one prompt: they share those that the prompt fills, but for its last token, whose logits
/// each text asks for.
fn pages_for(prompt: usize, texts: usize, tokens: usize) -> usize {
    let shared = prompt.saturating_sub(1) / KvCache::PAGE;
    shared + texts * KvCache::pages_of(tokens).saturating_sub(shared)
}
