//! `wgrad plan`: plans a training step and prints its memory.

mod text;

use std::process::ExitCode;

use wgrad::compile::{PassEffect, Plan, PlanOptions, Recompute, TrainStep};
use wgrad::dtype::{FrozenStorage, Precision};
use wgrad::optim::Optimizer;
use wgrad::report::{Answer, Asked, Fitting, Trace};
use wgrad::{Bytes, Error, Result, report};

use crate::fitting;
use crate::model::Selected;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    #[command(flatten)]
    fitting: fitting::Options,
    /// sgd, momentum, adam, adamw, lion, adafactor, adam8bit, adam4bit, amsgrad, nadam, radam, rmsprop, adagrad, adam-mini,
    /// muon, apollo or apollo-mini.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Device limits to plan for: discrete, webgpu, lavapipe, swiftshader, nvidia, rdna, arc, steam-deck or
    /// apple.
    #[arg(long, default_value = "discrete")]
    limits: String,
    /// Choose the cheapest combination of recomputation and accumulation that fits --budget.
    #[arg(long, requires = "budget")]
    fit: bool,
    /// Search for the largest batch within --budget with --recompute auto, too, where each batch is a search of its own.
    #[arg(long, requires = "budget")]
    max_batch: bool,
    /// Search for the longest sequence within --budget, in multiples of 64 tokens.
    #[arg(long, requires = "budget")]
    max_seq: bool,
    /// Print a table of the compiler's passes: when each runs, and by how much it changes bytes and
    /// dispatches.
    #[arg(long, conflicts_with = "summary")]
    passes: bool,
    /// Print the dispatches with their modelled times on --card: workgroups, arithmetic and bytes of each, sums by
    /// kernel, and the ten that lose most time.
    #[arg(long, conflicts_with_all = ["passes", "summary"])]
    launches: bool,
    #[command(flatten)]
    files: crate::files::Options,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// An answer and the data that is printed about it.
struct Printed {
    model: Selected,
    /// Model, batch and the options that are not the default.
    title: String,
    settings: PlanOptions,
    answer: Answer,
    /// The table of `--passes`.
    passes: Option<Vec<PassEffect>>,
}

/// Runs the command. The exit status is a failure if a budget is set and the plan exceeds it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let printed = printed(options)?;
    let answer = &printed.answer;
    options.files.export(&answer.plan)?;
    if let Some(effects) = &printed.passes {
        match options.json {
            true => println!("{}", report::passes_json(effects)),
            false => print!("{}", report::passes(effects)),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if options.launches {
        let (card, launches) = (&printed.settings.card, answer.plan.launches(&printed.settings.card)?);
        match options.json {
            true => println!("{}", report::launches_json(&launches)),
            false => {
                print!("{} · {}\n\n{}", printed.title, answer.plan.limits, report::launches(&launches, card))
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if options.files.summary(&answer.plan, options.json) {
        return Ok(ExitCode::SUCCESS);
    }
    if options.json {
        println!("{}", answer.json(&asked(options, &printed.model), &printed.settings));
    } else {
        text::print(options, &printed);
    }
    match &answer.fitting {
        Some(Fitting { budget, fits: false, .. }) => {
            let needs = answer.plan.footprint().total();
            let more = Bytes(needs.saturating_sub(budget.0));
            eprintln!("error: the step needs {}, the budget is {budget}: {more} too much", Bytes(needs));
            Ok(ExitCode::FAILURE)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn asked<'a>(options: &'a Options, model: &'a Selected) -> Asked<'a> {
    let network = &options.network;
    Asked {
        model: &network.choice.model,
        batch: network.batch(model),
        seq: model.seq(),
        parameters: model.params().count(),
        trained: model.params().trained(),
        optimizer: &options.optimizer,
        precision: &network.precision,
        weights: &network.weights,
        stochastic_rounding: network.stochastic_rounding,
        freeze: &network.freeze,
        lora: network.lora.as_ref(),
        frozen_weights: network.frozen_weights.map(FrozenStorage::name),
        limits: &options.limits,
        recompute: &options.fitting.recompute,
        offload: &options.fitting.offload,
    }
}

fn printed(options: &Options) -> Result<Printed> {
    let model = options.network.planned_network()?;
    let limits = fitting::limits(&options.limits)?;
    let (batch, fitting) = (options.network.batch(&model), &options.fitting);
    let precision = options.network.precision()?;
    let settings = PlanOptions {
        precision,
        weights: options.network.weights()?,
        fuse: !options.network.no_fuse,
        ..fitting.plan_options(Optimizer::named(&options.optimizer)?, None)?
    };
    let title = title(options, &model)?;
    let step = fitting.step(&model, batch)?;
    let passes = if options.passes { Some(step.passes(&settings, &limits)?) } else { None };
    let trace = |part: usize| model.train_step(part);
    let trace: Option<&Trace<'_>> = if model.fixed_batch().is_some() { None } else { Some(&trace) };
    let part = batch / fitting.parts().max(1) as usize;
    let mut answer = Answer::of(&step, part, trace, &settings, &limits, options.fit)?;
    if options.max_batch {
        answer = answer.with_max_batch(trace, &settings, &limits)?;
    }
    if options.max_seq {
        if model.seq().is_none() {
            let message = format!("--max-seq: `{}` takes no sequences", model.name());
            return Err(Error::setting("command line", message));
        }
        let longer = |tokens| options.network.with_seq(tokens).planned_network()?.train_step(part);
        answer = answer.with_max_seq(longer, &settings, &limits)?;
    }
    draw(options, &title, &step, &settings, &answer.plan)?;
    Ok(Printed { model, title, settings, answer, passes })
}

fn title(options: &Options, model: &Selected) -> Result<String> {
    let mut title = format!("{} · {}", options.network.title(model), options.optimizer);
    if options.network.precision != "f32" {
        title.push_str(&format!(" · {}", options.network.precision));
    }
    if options.fitting.bit_masks {
        title.push_str(" · masks as bits");
    }
    if options.network.weights != "f32" {
        title.push_str(&format!(" · weights {}", options.network.weights()?));
    }
    for pattern in &options.network.freeze {
        title.push_str(&format!(" · frozen {pattern}"));
    }
    if options.network.no_fuse {
        title.push_str(" · unfused");
    }
    if options.fitting.no_rebuild {
        title.push_str(" · no rebuild");
    }
    if options.fitting.recompute != "off" {
        title.push_str(&format!(" · recompute {}", options.fitting.recompute));
    }
    if options.fitting.offload != "off" {
        title.push_str(&format!(" · offload {}", options.fitting.offload));
    }
    if options.fitting.parts() > 1 {
        title.push_str(&format!(" · accumulate {}", options.fitting.parts()));
    }
    if options.fitting.ranks() > 1 {
        title.push_str(&format!(" · on {} ranks", options.fitting.ranks()));
        if options.fitting.tensor > 1 {
            title.push_str(", layers split");
        }
        if options.fitting.shares != "even" {
            title.push_str(&format!(", shares {}", options.fitting.shares));
        }
        if options.fitting.shard != "none" {
            title.push_str(&format!(", {} sharded", options.fitting.shard));
        }
    }
    Ok(title)
}

/// Draws the plan next to the naive plan and next to a plan without recomputation and 16-bit storage.
fn draw(options: &Options, title: &str, step: &TrainStep, settings: &PlanOptions, plan: &Plan) -> Result<()> {
    if !options.files.draws() {
        return Ok(());
    }
    let limits = fitting::limits(&options.limits)?;
    let naive = step.plan_naive(settings, &limits)?;
    let plain =
        PlanOptions { precision: Precision::F32, recompute: Recompute::Off, budget: None, ..*settings };
    let plain = step.plan(&plain, &limits)?;
    let mut panels = vec![report::Panel { name: "naive", plan: &naive }];
    if plain.hash() != plan.hash() {
        panels.push(report::Panel { name: "planned", plan: &plain });
    }
    let names = [
        (settings.precision != Precision::F32).then(|| format!("in {}", settings.precision.name())),
        (plan.work.again_s > plain.work.again_s).then(|| "recomputed".to_owned()),
    ];
    let name = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let name = if name.is_empty() { "planned" } else { &name };
    panels.push(report::Panel { name, plan });
    options.files.draw(&panels, &title.replace(" · ", ", "))
}
