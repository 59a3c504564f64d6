//! Local search over orders: squeaky-wheel optimization (Joslin & Clements, JAIR 10, 1999).
//!
//! An item that ended too high in one packing is placed earlier in the next. Each round is a whole skyline
//! packing, so one round may move many items.

use super::budget::Budget;
use super::greedy::Layout;
use super::instance::Instance;
use super::skyline;

/// How far an item that ended too high moves forward in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// Before all others.
    ToFront,
    /// To half its rank.
    Halfway,
}

/// Returns the lowest layout found in `rounds` skyline packings that start from `order`; ends early at height
/// `enough`. Returns `None` if the budget did not suffice for one packing.
pub(super) fn improve(
    instance: &Instance,
    mut order: Vec<u32>,
    blame: Blame,
    rounds: usize,
    enough: u64,
    budget: &mut Budget,
) -> Option<Layout> {
    let mut best: Option<Layout> = None;
    for _ in 0..rounds {
        let Some(layout) = skyline::pack(instance, &order, budget) else { break };
        order = blamed(instance, &order, &layout, enough, blame);
        if best.as_ref().is_none_or(|best| layout.height() < best.height()) {
            best = Some(layout);
        }
        if best.as_ref().is_some_and(|best| best.height() <= enough) {
            break;
        }
    }
    best
}

fn blamed(instance: &Instance, order: &[u32], layout: &Layout, enough: u64, blame: Blame) -> Vec<u32> {
    let mut wanted: Vec<(usize, u32)> = Vec::with_capacity(order.len());
    for (rank, &item) in order.iter().enumerate() {
        let i = item as usize;
        let too_high = layout.offset[i] + instance.size[i] > enough;
        let place = match (too_high, blame) {
            (true, Blame::ToFront) => 0,
            (true, Blame::Halfway) => rank,
            (false, _) => 2 * rank + 1,
        };
        wanted.push((place, item));
    }
    // A stable sort: items with equal keys keep their order.
    wanted.sort_by_key(|(place, _)| *place);
    wanted.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::super::order::Order;
    use super::super::problem::Item;
    use super::*;

    /// Items cut from a rectangle of 16 instants by 64 bytes.
    fn pieces(seed: u64) -> Vec<Item> {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut pieces = vec![(0, 16, 64)];
        while pieces.len() < 24 {
            let which = draw(pieces.len() as u64) as usize;
            let (lower, upper, size) = pieces[which];
            if draw(2) == 0 && upper - lower > 1 {
                let cut = lower + 1 + draw(upper - lower - 1);
                pieces[which].1 = cut;
                pieces.push((cut, upper, size));
            } else if size > 1 {
                let cut = 1 + draw(size - 1);
                pieces[which].2 = cut;
                pieces.push((lower, upper, size - cut));
            }
        }
        pieces.iter().map(|&(lower, upper, size)| Item::new("piece", lower, upper, size)).collect()
    }

    #[test]
    fn improvement_never_raises_and_often_lowers_the_height() {
        for blame in [Blame::ToFront, Blame::Halfway] {
            let mut helped = 0;
            for seed in 0..40 {
                let items = pieces(seed);
                let instance = Instance::new(&items.iter().collect::<Vec<_>>());
                let order = Order::Size.of(&instance);
                let height = |rounds| {
                    let mut budget = Budget::new(u64::MAX, None);
                    improve(&instance, order.clone(), blame, rounds, 64, &mut budget)
                        .expect("no limit")
                        .height()
                };
                let (before, after) = (height(1), height(30));
                assert!(64 <= after && after <= before);
                helped += usize::from(after < before);
            }
            assert!(helped >= 5, "{helped} of 40");
        }
    }
}
