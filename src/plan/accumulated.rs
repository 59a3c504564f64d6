//! A batch in several parts: the step repeated for each of them.

use crate::autodiff::Gradients;
use crate::compile::passes;
use crate::error::{Error, Result};
use crate::graph::{Mode, Tensor, Trace};

/// The step repeated for each part of a batch, gradients summed.
pub(super) fn accumulated(trace: Trace, gradients: Gradients, times: u32) -> Result<(Trace, Gradients)> {
    match times {
        0 => Err(Error::Option("accumulate 0: a step has at least one part".to_owned())),
        1 => Ok((trace, gradients)),
        _ => {
            let id = |gradient: &Tensor| gradient.id();
            let pairs: Vec<_> = gradients
                .pairs
                .iter()
                .filter_map(|(param, gradient)| Some((*param, id(gradient)?)))
                .collect();
            let scaled = gradients.scaled.and_then(|(scale, state)| Some((scale, state.id()?)));
            let (graph, pairs) = passes::accumulate(trace.finish()?, &pairs, times);
            let trace = Trace::over(graph, Mode::Train);
            let pairs = pairs.into_iter().map(|(param, sum)| (param, trace.tensor(sum))).collect();
            let scaled = scaled.map(|(scale, state)| (scale, trace.tensor(state)));
            Ok((trace, Gradients { pairs, scaled }))
        }
    }
}
