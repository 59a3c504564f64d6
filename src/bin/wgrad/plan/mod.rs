//! `wgrad plan`: plans a training step and prints its memory.

mod json;
mod text;

use std::process::ExitCode;

use wgrad::compile::{self, Lever, PassEffect, Plan, PlanOptions, Recompute, Savings, TrainStep};
use wgrad::dtype::Precision;
use wgrad::models::Model;
use wgrad::optim::Optimizer;
use wgrad::{Bytes, Error, Result, report};

use crate::fitting;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    network: crate::model::Options,
    #[command(flatten)]
    fitting: fitting::Options,
    /// sgd, momentum, adam, adamw, lion, adafactor or adam8bit.
    #[arg(long, default_value = "adam")]
    optimizer: String,
    /// Device limits to plan for: discrete, webgpu, lavapipe, swiftshader or nvidia.
    #[arg(long, default_value = "discrete")]
    limits: String,
    /// Choose the cheapest combination of recomputation and accumulation that fits --budget.
    #[arg(long, requires = "budget")]
    fit: bool,
    /// Print a table of the compiler's passes: when each runs, and by how much it changes bytes and
    /// dispatches.
    #[arg(long, conflicts_with = "summary")]
    passes: bool,
    #[command(flatten)]
    files: crate::files::Options,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A plan and the data that is printed about it.
struct Answer {
    model: Model,
    /// Model, batch and the options that are not the default.
    title: String,
    plan: Plan,
    savings: Savings,
    /// Changes made by `--fit`.
    changes: Vec<String>,
    fitting: Option<Fitting>,
    /// The table of `--passes`.
    passes: Option<Vec<PassEffect>>,
}

impl Answer {
    fn estimate(&self, batch: usize) -> report::Estimate {
        let estimate = self.plan.estimate().with_savings(self.savings).with_batch(batch);
        match &self.fitting {
            Some(fitting) => estimate.with_largest_batch(fitting.largest),
            None => estimate,
        }
    }
}

/// A plan's memory compared with its budget.
struct Fitting {
    budget: Bytes,
    fits: bool,
    /// Options that would save memory; empty if the plan fits.
    levers: Vec<Lever>,
    /// The cheapest combination that fits, if this plan does not fit and another does: changes, total bytes,
    /// extra time as a fraction.
    cheapest: Option<(String, u64, f64)>,
    largest: report::LargestBatch,
}

/// Runs the command. The exit status is a failure if a budget is set and the plan exceeds it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let answer = answer(options)?;
    options.files.export(&answer.plan)?;
    if let Some(effects) = &answer.passes {
        match options.json {
            true => println!("{}", report::passes_json(effects)),
            false => print!("{}", report::passes(effects)),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if options.files.summary(&answer.plan, options.json) {
        return Ok(ExitCode::SUCCESS);
    }
    if options.json {
        println!("{}", json::to_json(options, &answer)?);
    } else {
        text::print(options, &answer);
    }
    match answer.fitting {
        Some(Fitting { budget, fits: false, .. }) => {
            let needs = answer.plan.footprint().total();
            let more = Bytes(needs.saturating_sub(budget.0));
            eprintln!("error: the step needs {}, the budget is {budget}: {more} too much", Bytes(needs));
            Ok(ExitCode::FAILURE)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn answer(options: &Options) -> Result<Answer> {
    let model = options.network.model()?;
    let limits = fitting::limits(&options.limits)?;
    let (batch, fitting) = (options.network.batch, &options.fitting);
    let precision = options.network.precision()?;
    let settings = PlanOptions {
        precision,
        weights: options.network.weights()?,
        fuse: !options.network.no_fuse,
        ..fitting.plan_options(Optimizer::named(&options.optimizer)?)?
    };
    let title = title(options, &model)?;
    let step = fitting.step(&model, batch)?;
    let savings = step.savings(&settings, &limits)?;
    let passes = if options.passes { Some(step.passes(&settings, &limits)?) } else { None };
    let Some(budget) = fitting.budget()? else {
        let plan = step.plan(&settings, &limits)?;
        draw(options, &title, &step, &settings, &plan)?;
        return Ok(Answer { model, title, plan, savings, changes: Vec::new(), fitting: None, passes });
    };
    let trace = |part: usize| model.train_step(part);
    let part = batch / fitting.accumulate.max(1) as usize;
    let fit = || match compile::fit(trace, part, &settings, budget, &limits) {
        Ok(fitted) => Ok(Some(fitted)),
        Err(Error::OverBudget { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let fitted = if options.fit { fit()? } else { None };
    let (plan, changes) = match fitted {
        Some(fitted) => (fitted.plan, fitted.changes),
        None => (step.plan_over_budget(&settings, &limits)?, Vec::new()),
    };
    draw(options, &title, &step, &settings, &plan)?;
    let fits = plan.footprint().total() <= budget.0;
    let (mut levers, mut cheapest) = (Vec::new(), None);
    if !fits {
        levers = compile::levers(trace, part, &settings, budget, &limits)?;
        let found = if options.fit { None } else { fit()? };
        cheapest = found
            .map(|found| (found.changes.join(", "), found.plan.footprint().total(), found.time_fraction));
    }
    let largest = |budget: Bytes| -> Result<usize> {
        Ok(compile::max_batch(trace, &settings, budget, &limits)? * fitting.accumulate as usize)
    };
    let (all, with_headroom) = (largest(budget)?, largest(plan.estimate().spared(budget))?);
    let largest = report::LargestBatch { budget, all, with_headroom };
    let fitting = Some(Fitting { budget, fits, levers, cheapest, largest });
    Ok(Answer { model, title, plan, savings, changes, fitting, passes })
}

fn title(options: &Options, model: &Model) -> Result<String> {
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
    if options.fitting.accumulate > 1 {
        title.push_str(&format!(" · accumulate {}", options.fitting.accumulate));
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
