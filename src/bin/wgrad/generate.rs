//! `wgrad generate`: lets a language model of a folder of Hugging Face write.

use std::path::PathBuf;

use wgrad::compile::Forward;
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::{LoraConfig, ParamGroup, Params};
use wgrad::models::{Model, ModelOptions};
use wgrad::{Error, Result};

use crate::print;
use crate::text::{Language, load, seq, writer};

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
    /// Tokens that the model sees; by default 512, or as many as it was trained on if those are fewer.
    #[arg(long, value_name = "TOKENS")]
    seq: Option<usize>,
    /// Storage format of the model's matrices: f32, f16, bf16, int8, int4 or nf4.
    #[arg(long, value_name = "FORMAT", value_parser = crate::model::frozen_storage)]
    weights: Option<wgrad::dtype::FrozenStorage>,
    #[command(flatten)]
    writer: writer::Options,
    #[command(flatten)]
    device: crate::device::Options,
}

pub fn run(options: &Options) -> Result<()> {
    options.writer.check()?;
    let language = Language::open(&options.folder)?;
    let prompt = language.prompt(&options.prompt, options.chat)?;
    let params = Params::new(0);
    if let Some(adapters) = &options.adapters {
        params.adapt(&LoraConfig { base: options.weights, ..LoraConfig::open(adapters)? })?;
    }
    let seq = Some(seq(&options.folder, options.seq)?);
    let model = Model::open(params, &options.folder, &ModelOptions { seq, ..ModelOptions::default() })?;
    if options.adapters.is_none() && options.weights.is_some() {
        let group = ParamGroup { frozen: true, storage: options.weights, ..ParamGroup::default() };
        model.params().set_group("*", group)?;
    }
    let forward = Forward::trace(model.params(), "logits", |trace| model.next_logits(trace))?;
    let device = options.device.open()?;
    let plan = forward.plan(&options.device.limits(&device, wgrad::dtype::Precision::F32)?)?;
    let mut session = Session::with_plans(&device, &[&plan], Debug::default())?;
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
    options.writer.write(&mut session, ProgramId(0), &language, prompt, &mut show)?;
    show("\n")
}
