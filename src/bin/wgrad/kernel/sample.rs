//! The f64 check of a kernel at any size: the operation is computed in f64 for some indices of its dimensions, from the
//! operands' elements at these indices, and compared with the elements of the device's result there.

use wgrad::autodiff::{Read, differentiate};
use wgrad::dtype::{DType, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Graph, Init, Mode, Param, Trace};
use wgrad::reference::Twin;
use wgrad::{Error, Result, random};

use super::jobs::{Job, Operands, data};
use super::work::{Checked, Timed, Work};

/// How far a kernel is from f64.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The largest difference, as a part of the largest element that was compared of the same result.
    pub max_error: f64,
    /// Elements that were compared.
    pub elements: usize,
}

/// Indices of a summed dimension in each part.
const PART: usize = 512;

/// Returns the class indices of an operation, the input `labels`.
pub fn labels(rows: usize, classes: u32) -> Vec<u32> {
    let key = random::key(0, "bench labels");
    (0..rows as u64).map(|i| (random::bits(key, i) % u64::from(classes)) as u32).collect()
}

/// Compares the results of the session's last run with f64.
pub fn compare(session: &mut Session, job: &Job, work: &Work, dtype: WeightStorage) -> Result<Compared> {
    let mut all = Compared { max_error: 0.0, elements: 0 };
    for result in &work.results {
        let found = match work.timed {
            Timed::Update(_) => session.parameter(result.of)?,
            Timed::All | Timed::Training(_) => session.output::<f32>(ProgramId(0), &result.output())?,
        };
        if let Some(x) = found.iter().find(|x| !x.is_finite()) {
            return Err(Error::Internal(format!("{} returned {x}", job.variant())));
        }
        let expected = expected(work, result, dtype, &job.plan)?;
        let lengths: Vec<usize> = result.dims.iter().map(|&dim| work.dims[dim]).collect();
        let taken: Vec<&[usize]> = result.dims.iter().map(|&dim| &result.take[dim][..]).collect();
        let (mut worst, mut largest, mut elements) = (0.0f64, f64::MIN_POSITIVE, 0);
        let mut wanted = expected.iter();
        each_run(&lengths, &taken, |start, len| {
            for (ours, theirs) in found[start..start + len].iter().zip(&mut wanted) {
                worst = worst.max((f64::from(*ours) - theirs).abs());
                largest = largest.max(theirs.abs());
                elements += 1;
            }
        });
        if elements != expected.len() {
            return Err(Error::Internal(format!("{elements} of {} elements compared", expected.len())));
        }
        all.max_error = all.max_error.max(worst / largest);
        all.elements += elements;
    }
    Ok(all)
}

/// Computes a result in f64 for the indices that it takes.
fn expected(
    work: &Work,
    result: &Checked,
    dtype: WeightStorage,
    plan: &wgrad::compile::Plan,
) -> Result<Vec<f64>> {
    let Some(dim) = result.summed else { return one(work, result, &result.take, dtype, plan) };
    let mut sum: Vec<f64> = Vec::new();
    for part in result.take[dim].chunks(PART) {
        let mut take = result.take.clone();
        take[dim] = part.to_vec();
        let next = one(work, result, &take, dtype, plan)?;
        sum.resize(next.len(), 0.0);
        sum.iter_mut().zip(next).for_each(|(sum, next)| *sum += next);
    }
    Ok(sum)
}

fn one(
    work: &Work,
    result: &Checked,
    take: &[Vec<usize>],
    dtype: WeightStorage,
    plan: &wgrad::compile::Plan,
) -> Result<Vec<f64>> {
    let whole = Operands::of(work, &work.dims, |_| Init::fan_in(4));
    let lengths: Vec<usize> = take.iter().map(Vec::len).collect();
    let some = Operands::of(work, &lengths, |i| {
        let held = if work.is_held(i) { dtype.storage() } else { None };
        data(gathered(work, &whole.list()[i], &work.operands[i].dims, take, held))
    });
    let graph = match work.timed {
        Timed::All => Trace::record(&some.params, Mode::Eval, "y", |trace| some.result(work, trace))?,
        Timed::Training(_) => derived(some.step(work)?.graph().clone())?,
        Timed::Update(_) => some.update(dtype)?,
    };
    let mut twin = Twin::new(&graph);
    if let Some((dim, classes)) = work.labels {
        let all = labels(work.dims[dim], classes);
        let taken: Vec<u32> = take[dim].iter().map(|&i| all[i]).collect();
        twin.set_u32("labels", &taken)?;
    }
    if let Some(optimizer) = plan.optimizer {
        twin.set_step(&optimizer.scalars(0, optimizer.learning_rate(), plan.seed));
    }
    twin.run()?;
    let values = match work.timed {
        Timed::Update(_) => twin.parameter(result.of)?,
        Timed::All | Timed::Training(_) => twin.output(&result.output())?,
    };
    Ok(values.iter().map(|x| x * result.factor).collect())
}

/// Appends the backward pass to a training step, with the gradients that are read as outputs.
fn derived(graph: Graph) -> Result<Graph> {
    let loss = graph.outputs[0].1;
    let (trace, gradients) = differentiate(graph, loss)?;
    for (name, read) in &gradients.read {
        if let Read::Value(_, gradient) = read {
            trace.output(name, gradient);
        }
    }
    trace.finish()
}

/// Returns the elements of an operand at the indices taken, rounded to what it is stored in.
fn gathered(
    work: &Work,
    param: &Param,
    dims: &[usize],
    take: &[Vec<usize>],
    held: Option<DType>,
) -> Vec<f32> {
    let lengths: Vec<usize> = dims.iter().map(|&dim| work.dims[dim]).collect();
    let taken: Vec<&[usize]> = dims.iter().map(|&dim| &take[dim][..]).collect();
    let mut elements = Vec::new();
    each_run(&lengths, &taken, |start, len| {
        elements.extend(param.initial(start as u64..(start + len) as u64));
    });
    let round = |x: f32| match held {
        Some(DType::F16) => half::f16::from_f32(x).to_f32(),
        Some(DType::BF16) => half::bf16::from_f32(x).to_f32(),
        _ => x,
    };
    elements.into_iter().map(round).collect()
}

/// Calls `visit(start, length)` for runs of elements that lie side by side, in row-major order of the indices taken.
fn each_run(lengths: &[usize], taken: &[&[usize]], mut visit: impl FnMut(usize, usize)) {
    // The last dimensions of which everything is taken are one run.
    let whole = lengths.iter().zip(taken).rev().take_while(|(length, taken)| taken.len() == **length).count();
    let outer = lengths.len() - whole;
    let run: usize = lengths[outer..].iter().product();
    let mut at = vec![0; outer];
    if taken[..outer].iter().any(|taken| taken.is_empty()) {
        return;
    }
    loop {
        let start = (0..outer).fold(0, |start, dim| start * lengths[dim] + taken[dim][at[dim]]);
        visit(start * run, run);
        // The next indices, the last dimension first.
        let Some(dim) = (0..outer).rev().find(|&dim| at[dim] + 1 < taken[dim].len()) else { return };
        at[dim] += 1;
        at[dim + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_indices_taken() {
        let runs = |lengths: &[usize], taken: &[&[usize]]| {
            let mut list = Vec::new();
            each_run(lengths, taken, |start, len| list.push((start, len)));
            list
        };
        assert_eq!(runs(&[2, 3, 4], &[&[1], &[0, 2], &[0, 1, 2, 3]]), [(12, 4), (20, 4)]);
        assert_eq!(runs(&[3, 2], &[&[0, 1, 2], &[1]]), [(1, 1), (3, 1), (5, 1)]);
        assert_eq!(runs(&[2, 2], &[&[0, 1], &[0, 1]]), [(0, 4)]);
        assert_eq!(runs(&[], &[]), [(0, 1)]);
    }
}
