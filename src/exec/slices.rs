//! Where a run is cut into several submits. Systems end a device whose submit takes too long: Windows after 2 s
//! (`TdrDelay`), and drivers on Linux after a few seconds. Software adapters have no such limit.

use std::time::Duration;

use crate::compile::Plan;
use crate::limits::{AdapterClass, Card};

/// Modelled time of one submit. In browsers pages are drawn by the same GPU, between submits.
pub(super) const SUBMIT_TIME: Duration =
    Duration::from_millis(if cfg!(target_family = "wasm") { 50 } else { 100 });

/// Returns a slow adapter of the class, from data sheets: Intel's UHD 620 with DDR4-2133, NVIDIA's GTX 1650. A
/// submit that they model as 100 ms may take 20 times as long before Windows ends it; on fast cards it takes a few
/// milliseconds, in which a submit's own cost is lost.
fn card(class: AdapterClass) -> Option<Card> {
    let (flops_per_s, bytes_per_s) = match class {
        AdapterClass::Cpu => return None,
        AdapterClass::Integrated => (0.4e12, 34e9),
        AdapterClass::Discrete => (3e12, 128e9),
    };
    Some(Card { flops_per_s, matrix_flops_per_s: flops_per_s, bytes_per_s, ..Card::default() })
}

/// Returns the modelled seconds of each dispatch, at full rates.
fn seconds(plan: &Plan, card: &Card) -> Vec<f64> {
    let launches = plan.launches(card).expect("what a plan has was lowered for its limits");
    launches.iter().map(|launch| launch.full_rate_s).collect()
}

/// Returns the dispatches, in ascending order, before each of which a submit ends, so that no submit's modelled
/// time is above `most` unless it is a single dispatch.
pub(super) fn cuts(plan: &Plan, most: Duration) -> Vec<usize> {
    let Some(card) = card(plan.limits.class) else { return Vec::new() };
    let mut cuts = Vec::new();
    let mut sum = 0.0;
    for (launch, seconds) in seconds(plan, &card).into_iter().enumerate() {
        if sum > 0.0 && sum + seconds > most.as_secs_f64() {
            cuts.push(launch);
            sum = 0.0;
        }
        sum += seconds;
    }
    cuts
}

/// Returns the number of dispatches before the first that changes an operand, such as an update; 0 with
/// transfers.
pub(super) fn pure(plan: &Plan) -> usize {
    if !plan.program.transfers.is_empty() {
        return 0;
    }
    let changes = |position: usize| plan.program.nodes_at(position).any(|node| !node.op.mutates().is_empty());
    plan.program.launches.iter().take_while(|(_, position)| !changes(*position)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::PlanOptions;
    use crate::limits::Limits;
    use crate::models::Model;

    fn plan(name: &str, batch: usize, limits: &str) -> Plan {
        let step = Model::named(name, 0).expect("known").train_step(batch).expect("valid");
        step.plan(&PlanOptions::default(), &Limits::named(limits).expect("a preset")).expect("planned")
    }

    #[test]
    fn no_submit_is_longer_than_it_may_be() {
        for limits in ["webgpu", "nvidia"] {
            let plan = plan("gpt-nano", 4, limits);
            let all = seconds(&plan, &card(plan.limits.class).expect("a GPU"));
            let (sum, longest) = (all.iter().sum::<f64>(), all.iter().copied().fold(0.0, f64::max));
            assert_eq!(all.len(), plan.program.launches.len());
            for parts in [1.5, 3.0, 10.0] {
                let most = sum / parts;
                let cuts = cuts(&plan, Duration::from_secs_f64(most));
                assert!(cuts.len() as f64 >= parts.floor(), "{limits}: {} cuts", cuts.len());
                assert!(cuts.len() as f64 <= 2.0 * parts, "{limits}: {} cuts", cuts.len());
                let ends: Vec<usize> = [0].into_iter().chain(cuts).chain([all.len()]).collect();
                for range in ends.windows(2) {
                    let part = &all[range[0]..range[1]];
                    assert!(part.len() == 1 || part.iter().sum::<f64>() <= most * 1.001);
                }
            }
            assert!(longest < sum);
            assert!(cuts(&plan, Duration::from_secs(3600)).is_empty());
        }
    }

    /// The step of 100 ms on small cards is cut by the time that a submit has, and none is on software adapters.
    #[test]
    fn long_steps_are_cut_on_gpus_alone() {
        assert!(cuts(&plan("mlp", 128, "webgpu"), SUBMIT_TIME).is_empty());
        let gpus =
            ["steam-deck", "nvidia"].map(|limits| cuts(&plan("resnet18", 64, limits), SUBMIT_TIME).len());
        // A forward pass has 1.8 GFLOP a sample, a step three times as many.
        assert!(gpus[0] >= 8 && gpus[1] >= 1 && gpus[0] > 3 * gpus[1], "{gpus:?}");
        assert!(cuts(&plan("resnet18", 64, "swiftshader"), SUBMIT_TIME).is_empty());
    }
}
