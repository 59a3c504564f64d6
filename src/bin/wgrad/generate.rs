//! `wgrad generate`: lets a language model of a folder of Hugging Face write.

use std::path::PathBuf;

use wgrad::compile::Forward;
use wgrad::dtype::{DType, Precision};
use wgrad::exec::{Debug, Decoder, ProgramId, Sampling, Session};
use wgrad::graph::{LoraConfig, ParamGroup, Params};
use wgrad::models::{Model, ModelOptions};
use wgrad::{Bytes, Error, Result};

use crate::print;
use crate::text::{Language, load, writer};

#[derive(clap::Args)]
pub struct Options {
    /// Folder of Hugging Face, with config.json, tokenizer.json and weights.
    folder: PathBuf,
    /// What the text begins with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prompt: String,
    /// Ask the prompt as a user's question, by the chat template of the folder.
    #[arg(long)]
    chat: bool,
    /// Folder of an adapter in PEFT's layout, such as finetune writes.
    #[arg(long, value_name = "FOLDER")]
    adapters: Option<PathBuf>,
    /// Tokens of the prompt and what is written together, which the KV cache holds; by default as many as these can be.
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
    let prompt = language.prompt(&options.prompt, options.chat)?;
    let params = Params::new(0);
    if let Some(adapters) = &options.adapters {
        params.adapt(&LoraConfig { base: options.weights, ..LoraConfig::open(adapters)? })?;
    }
    let model = Model::open(params, &options.folder, &ModelOptions::default())?;
    if options.adapters.is_none() && options.weights.is_some() {
        let group = ParamGroup { frozen: true, storage: options.weights, ..ParamGroup::default() };
        model.params().set_group("*", group)?;
    }
    let room = options.seq.unwrap_or(prompt.len() + options.writer.length);
    let cache = model.kv_cache(room, options.cache)?;
    let device = options.device.open()?;
    let limits = options.device.limits(&device, Precision::F32)?;
    let of_tokens = |tokens: usize| {
        Forward::trace(model.params(), "logits", |trace| model.cached_logits(trace, &cache, tokens))?
            .plan(&limits)
    };
    // A prompt of one token needs no other program than the rest of the text.
    let mut sizes = vec![1, prompt.len().clamp(1, AT_ONCE)];
    sizes.dedup();
    let plans = sizes.into_iter().map(of_tokens).collect::<Result<Vec<_>>>()?;
    let mut session = Session::with_plans(&device, &plans.iter().collect::<Vec<_>>(), Debug::default())?;
    if !quiet {
        let (all, own) = (Bytes(session.device_bytes()), Bytes(cache.bytes()));
        eprintln!("{all} are created on the device, {own} of them for a KV cache of {room} tokens");
    }
    let mut decoder = Decoder::new(&session, &(0..plans.len()).map(ProgramId).collect::<Vec<_>>())?;
    load(&mut session, &model, &options.folder)?;
    if let Some(adapters) = &options.adapters {
        session.load_adapter(adapters)?;
    }
    let mut show = |text: &str| {
        print!("{text}");
        print::end().map_err(Error::Internal)
    };
    if !options.chat {
        show(&options.prompt)?;
    }
    // The decoder refuses a prompt that is too long; what is written ends where the cache does.
    let asked = prompt.len();
    let next = |text: &[u32], sampling: &Sampling| match text.len() > room.max(asked) {
        true => Ok(None),
        false => decoder.next_token(&mut session, text, sampling).map(Some),
    };
    options.writer.write(&language, prompt, next, &mut show)?;
    show("\n")
}
