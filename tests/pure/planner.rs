//! The offset planner against random problems, edge cases, and the public problems in the folder that
//! `WGRAD_PROBLEMS` names.

use std::path::Path;
use std::time::Duration;

use crate::support::problem_files::{committed_problems, public_problems};
use crate::support::problems::{brute_force, lowest_place, side_by_side, thinned, windmills};
use proptest::prelude::*;
use wgrad::memory::planner::{
    Certificate, Effort, Item, Options, PackError, Packing, Placement, Problem, lower_bound, read_problem,
    solve, validate, write_problem, write_solution,
};

fn with(effort: Effort) -> Options {
    Options { effort, ..Options::default() }
}

fn packed(problem: &Problem, effort: Effort) -> Packing {
    let packing = solve(problem, &with(effort)).expect("can be packed");
    validate(problem, &packing.solution).expect("valid");
    let certificate = packing.certificate;
    assert_eq!(certificate.height, packing.solution.height());
    assert_eq!(certificate.gap, certificate.height - certificate.lower_bound);
    assert_eq!(certificate.optimal, certificate.gap == 0);
    packing
}

fn item(sizes: std::ops::Range<u64>, alignments: &'static [u64]) -> impl Strategy<Value = Item> {
    (0..12u64, 1..7u64, sizes, prop::sample::select(alignments)).prop_map(
        |(lower, length, size, alignment)| Item::new("item", lower, lower + length, size).aligned(alignment),
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        // The problems are the same every time, so a failure can be reproduced.
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_packing_is_valid_deterministic_and_not_below_the_bound(
        items in prop::collection::vec(item(0..40, &[1, 4, 6]), 0..24),
        max_arena in prop::option::of(40..120u64),
    ) {
        let problem = Problem { items, max_item: Some(40), max_arena };
        let packing = packed(&problem, Effort::Fast);
        prop_assert!(packing.certificate.lower_bound >= lower_bound(&problem.items).expect("small"));
        prop_assert!(packing.solution.arenas.iter().all(|&height| height <= max_arena.unwrap_or(height)));
        prop_assert_eq!(&packing, &packed(&problem, Effort::Fast));
    }

    #[test]
    fn no_effort_is_worse_than_greedy_packing_by_size(
        items in prop::collection::vec(item(0..40, &[1, 4, 6]), 0..24),
    ) {
        let mut by_size = items.clone();
        // Ties are ordered as in the planner: another order may be lower by chance.
        by_size.sort_by_key(|i| (std::cmp::Reverse(i.size), std::cmp::Reverse(i.upper - i.lower), i.lower));
        let mut places = Vec::new();
        let greedy = by_size.iter().enumerate().map(|(next, item)| {
            let offset = lowest_place(&by_size, &places, next);
            places.push((next, offset));
            offset + item.size
        });
        let greedy = greedy.max().unwrap_or(0);
        let problem = Problem::new(items);
        let fast = packed(&problem, Effort::Fast).certificate.height;
        prop_assert!(fast <= greedy, "{fast} {greedy}");
        let options = Options { time_limit: Some(Duration::from_millis(200)), ..with(Effort::Balanced) };
        let balanced = solve(&problem, &options).expect("can be packed").certificate.height;
        prop_assert!(balanced <= greedy, "{balanced} {greedy}");
    }

    #[test]
    fn small_problems_are_packed_as_low_as_brute_force_can(
        items in prop::collection::vec(item(0..9, &[1, 1, 2, 4]), 1..8),
    ) {
        let truth = brute_force(&items);
        let certificate = packed(&Problem::new(items), Effort::Exact).certificate;
        prop_assert_eq!(certificate.height, truth);
        prop_assert!(certificate.optimal);
    }

    #[test]
    fn small_problems_with_a_fixed_item_are_packed_as_low_as_brute_force_can(
        items in prop::collection::vec(item(1..9, &[1, 2]), 1..7),
        fixed in (0..12u64, 1..7u64, 1..9u64, 0..12u64),
    ) {
        let (lower, length, size, offset) = fixed;
        let mut items = items;
        items.push(Item::new("held", lower, lower + length, size).fixed_at(0, offset));
        let truth = brute_force(&items);
        let certificate = packed(&Problem::new(items), Effort::Exact).certificate;
        prop_assert_eq!(certificate.height, truth);
        prop_assert!(certificate.optimal);
    }

    #[test]
    fn rectangles_cut_from_a_full_one_are_packed_without_gaps(cuts in prop::collection::vec((0..1000usize, 1..100u64, any::<bool>()), 0..40)) {
        let mut pieces = vec![(0u64, 64u64, 256u64)];
        for (which, percent, in_time) in cuts {
            let which = which % pieces.len();
            let (lower, upper, size) = pieces[which];
            let part = |whole: u64| whole * percent / 100;
            let (time, space) = (part(upper - lower), part(size));
            if in_time && time > 0 {
                pieces[which].1 = lower + time;
                pieces.push((lower + time, upper, size));
            } else if !in_time && space > 0 {
                pieces[which].2 = space;
                pieces.push((lower, upper, size - space));
            }
        }
        let items = pieces.iter().map(|&(lower, upper, size)| Item::new("piece", lower, upper, size)).collect();
        let certificate = packed(&Problem::new(items), Effort::Balanced).certificate;
        prop_assert_eq!((certificate.height, certificate.lower_bound), (256, 256));
    }

    #[test]
    fn csv_round_trips_and_no_input_makes_the_reader_panic(
        items in prop::collection::vec(item(0..1000, &[1, 256]), 1..20),
        noise in "[a-z0-9,\"\n-]{0,80}",
    ) {
        let problem = Problem::new(items);
        let mut text = Vec::new();
        write_problem(&problem, &mut text).expect("memory");
        prop_assert_eq!(read_problem(std::str::from_utf8(&text).expect("UTF-8")), Ok(problem));
        let _ = read_problem(&noise);
        let _ = read_problem(&format!("id,lower,upper,size\n{noise}"));
    }
}

#[test]
fn trivial_problems_are_packed_exactly() {
    assert_eq!(packed(&Problem::default(), Effort::Exact).certificate.height, 0);
    let sizes = [5u64, 0, 7, 1, 0, 30];
    for (lower, upper) in [(0, 1), (3, u64::MAX)] {
        let items = sizes.iter().map(|&size| Item::new("same", lower, upper, size)).collect();
        let packing = packed(&Problem::new(items), Effort::Fast);
        assert_eq!((packing.certificate.height, packing.certificate.optimal), (43, true));
    }
    let empty = (0..50).map(|i| Item::new("empty", i, i + 3, 0)).collect();
    assert_eq!(packed(&Problem::new(empty), Effort::Exact).certificate.height, 0);
}

#[test]
fn sizes_near_64_bits_are_packed_or_overflow() {
    let giant = |lower, upper, less| Item::new("giant", lower, upper, u64::MAX - less);
    let apart = Problem::new(vec![giant(0, 1, 0), giant(1, 2, 3), giant(2, 3, 7).aligned(256)]);
    assert_eq!(packed(&apart, Effort::Exact).certificate.height, u64::MAX);
    let together = Problem::new(vec![giant(0, 2, 0), giant(1, 2, 0)]);
    assert_eq!(solve(&together, &Options::default()), Err(PackError::Overflow { items: 2 }));
    let beside = Problem::new(vec![giant(0, 2, 2), Item::new("small", 1, 3, 1), Item::new("too", 1, 3, 1)]);
    assert_eq!(packed(&beside, Effort::Balanced).certificate.height, u64::MAX);
    let arenas = Problem::new(vec![giant(0, 1, 0), giant(0, 1, 0).in_arena(1)]);
    assert_eq!(solve(&arenas, &Options::default()), Err(PackError::Overflow { items: 2 }));
    let padded =
        Problem::new(vec![giant(0, 2, 0).aligned(1 << 40), Item::new("small", 0, 1, 1).aligned(1 << 40)]);
    assert_eq!(solve(&padded, &Options::default()), Err(PackError::Overflow { items: 2 }));
    assert!(matches!(
        solve(&Problem::new(vec![giant(0, 2, 0).fixed_at(0, 1)]), &Options::default()),
        Err(PackError::BadFixedPlace { .. })
    ));
}

#[test]
fn hundred_thousand_buffers_are_packed_within_a_tenth_of_the_bound() {
    let mut state = 1u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let items: Vec<Item> = (0..100_000)
        .map(|i| {
            let lower = draw(200_000);
            let length = 1 + if i % 50 == 0 { draw(20_000) } else { draw(200) };
            Item::new("b", lower, lower + length, 1 + draw(1 << 20)).aligned(256)
        })
        .collect();
    let certificate = packed(&Problem::new(items), Effort::Fast).certificate;
    let ratio = certificate.height as f64 / certificate.lower_bound as f64;
    assert!(ratio < 1.1, "{ratio}");
}

/// Copies of one training step in sequence, of different sizes, over weights that live throughout; some
/// buffers span two steps.
fn overlapping_steps(steps: u64, layers: u64) -> Problem {
    let (length, mut state) = (4 * layers, 5u64);
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut items = Vec::new();
    for step in 0..steps {
        let (start, end, scale) = (step * length, (step + 1) * length, 512 * (1 + draw(3)));
        for layer in 0..layers {
            let (up, down, size) = (start + 2 * layer, end - 2 * layer, scale * (1 + draw(9)));
            items.push(Item::new("activation", up, down, 3 * size));
            items.push(Item::new("workspace", up, up + 1 + draw(3), size));
            items.push(Item::new("gradient", down - 1, down + draw(4), 2 * size));
        }
        let lower = start + draw(length);
        items.push(Item::new("joint", lower, lower + length / 2 + draw(length), scale * draw(20)));
        items.push(Item::new("weight", 0, steps * length, scale * (1 + draw(90))));
    }
    Problem::new(items)
}

#[test]
fn overlapping_steps_are_packed_to_within_a_hundredth() {
    for (steps, layers) in [(40, 50), (6, 700)] {
        let problem = overlapping_steps(steps, layers);
        for effort in [Effort::Fast, Effort::Balanced] {
            let packing = packed(&problem, effort);
            let ratio = packing.certificate.height as f64 / packing.certificate.lower_bound as f64;
            assert!(ratio <= 1.01, "{steps} steps of {layers} layers, {effort:?}: {ratio}");
            assert_eq!(packing, packed(&problem, effort));
        }
    }
}

/// On which a search for the last bytes took seconds.
const ODD: [(u64, u64, u64); 25] = [
    (3, 53, 989698),
    (14, 64, 116542),
    (24, 65, 332734),
    (40, 82, 598807),
    (30, 37, 7016),
    (1, 21, 644368),
    (22, 43, 497889),
    (19, 36, 911489),
    (20, 56, 668212),
    (27, 58, 1015643),
    (47, 49, 188086),
    (28, 43, 874733),
    (41, 86, 446279),
    (0, 3, 297185),
    (24, 54, 774676),
    (21, 38, 570677),
    (20, 47, 387025),
    (2, 27, 265819),
    (6, 35, 394146),
    (4, 34, 129049),
    (26, 30, 180088),
    (35, 59, 346761),
    (32, 52, 377649),
    (33, 42, 593697),
    (1, 44, 459088),
];

#[test]
fn less_than_the_common_alignment_is_not_searched_for() {
    let items = ODD.iter().map(|&(lower, upper, size)| Item::new("odd", lower, upper, size).aligned(256));
    let problem = Problem::new(items.collect());
    let Certificate { gap, method, .. } = packed(&problem, Effort::Balanced).certificate;
    assert!((1..256).contains(&gap) && method.to_string().starts_with("greedy"), "{gap} {method}");
}

#[test]
fn arenas_are_separate_and_overflow_into_new_buffers() {
    let items = vec![
        Item::new("weights", 0, 9, 60),
        Item::new("step", 0, 5, 30).in_arena(3),
        Item::new("step", 4, 9, 30).in_arena(3),
        Item::new("step", 0, 9, 30).in_arena(3),
    ];
    let problem = Problem { items, max_item: Some(60), max_arena: Some(70) };
    let packing = packed(&problem, Effort::Balanced);
    let arenas: Vec<u32> = packing.solution.placements.iter().map(|place| place.arena).collect();
    assert_eq!(packing.certificate.height, 150);
    assert_eq!(packing.certificate.lower_bound, 150);
    assert_eq!(packing.solution.arenas.len(), 5);
    assert!(arenas[0] == 0 && arenas[1..].iter().all(|&arena| arena == 3 || arena == 4), "{arenas:?}");
}

#[test]
fn several_buffers_reach_the_bound_of_one() {
    // Weights that live throughout, and a step above them, over buffers that are too small for either.
    let mut items: Vec<Item> = (0..40).map(|i| Item::new("weight", 0, 100, 1000 + 10 * i)).collect();
    items.extend((0..90).map(|i| Item::new("activation", i, i + 1 + i % 9, 700 + 13 * (i % 7))));
    let problem = Problem { items, max_item: None, max_arena: Some(20_000) };
    let certificate = packed(&problem, Effort::Balanced).certificate;
    assert!(certificate.optimal, "{certificate:?}");
}

#[test]
fn a_capacity_or_a_time_limit_ends_the_search_early() {
    let items: Vec<Item> =
        (0..200u64).map(|i| Item::new("b", i, i + 1 + i * 7 % 23, 1 + i * 31 % 97)).collect();
    let problem = Problem::new(items);
    let total = problem.items.iter().map(|item| item.size).sum();
    let options = Options { capacity: Some(total), ..Options::default() };
    let early = solve(&problem, &options).expect("packs").certificate;
    assert!(early.height <= total);
    let options = Options { effort: Effort::Exact, time_limit: Some(Duration::ZERO), ..Options::default() };
    let hurried = solve(&problem, &options).expect("packs").certificate;
    assert!(hurried.height >= packed(&problem, Effort::Balanced).certificate.height);
}

#[test]
fn solution_file_reads_back_as_fixed_placements() {
    let problem = Problem::new((0..30u64).map(|i| Item::new(format!("b{i}"), i, i + 5, 10 + i)).collect());
    let packing = packed(&problem, Effort::Balanced);
    let mut text = Vec::new();
    write_solution(&problem, &packing.solution, &mut text).expect("memory");
    let held = read_problem(std::str::from_utf8(&text).expect("UTF-8")).expect("reads");
    let places: Vec<Option<Placement>> = packing.solution.placements.iter().copied().map(Some).collect();
    assert_eq!(held.items.iter().map(|item| item.fixed).collect::<Vec<_>>(), places);
    assert_eq!(packed(&held, Effort::Exact).solution, packing.solution);
}

fn read(path: &Path) -> Problem {
    let text = std::fs::read_to_string(path).expect("readable");
    read_problem(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn challenging_problems_are_solved_to_their_bound() {
    for path in public_problems("minimalloc") {
        let certificate = packed(&read(&path), Effort::Balanced).certificate;
        assert!(certificate.optimal, "{}: {certificate:?}", path.display());
    }
}

#[test]
fn real_traces_are_packed_to_their_bound() {
    for folder in ["pytorch", "idealloc"] {
        for path in public_problems(folder) {
            let certificate = packed(&read(&path), Effort::Balanced).certificate;
            assert!(certificate.optimal, "{}: {certificate:?}", path.display());
        }
    }
}

#[test]
fn training_steps_side_by_side_are_packed_within_half_a_percent_of_the_bound() {
    let read = |name: &str| {
        let text = std::fs::read_to_string(committed_problems(name)).expect("readable");
        read_problem(&text).expect("a problem")
    };
    let steps = ["gpt2.csv", "resnet50.csv", "unet.csv"].map(read);
    for seed in [1, 2] {
        let problem = side_by_side(seed, &steps, 27);
        let certificate = packed(&problem, Effort::Balanced).certificate;
        assert!(certificate.ratio() <= 1.005, "seed {seed}, {} items: {certificate:?}", problem.items.len());
    }
}

#[test]
fn rectangles_cut_without_straight_cuts_are_packed_exactly() {
    for seed in 0..8 {
        let known = windmills(seed, (30, 1 << 14), 512, 60);
        let exact = packed(&known.problem, Effort::Exact).certificate;
        assert_eq!((exact.height, exact.optimal), (known.optimum, true), "{seed}: {exact:?}");
    }
}

/// Prints how far the exact effort without a capacity ends above the bound after 1, 10 and 60 s.
#[test]
#[ignore = "a table of minutes, not a check"]
fn gaps_of_the_exact_effort_over_time() {
    let mut problems: Vec<(String, Problem)> = Vec::new();
    for (seed, pieces) in [(1, 300), (2, 400), (3, 200)] {
        let whole = windmills(seed, (pieces / 2, 1 << 20), 1, pieces as usize);
        problems.push((format!("rectangle, {pieces} pieces"), whole.problem.clone()));
        problems.push(("the same, thinned to 94 %".to_owned(), thinned(seed, whole, 94).problem));
    }
    let read = |name: &str| {
        let text = std::fs::read_to_string(committed_problems(name)).expect("readable");
        read_problem(&text).expect("a problem")
    };
    let steps = ["gpt2.csv", "resnet50.csv", "unet.csv"].map(read);
    problems.extend((1..4).map(|seed| (format!("steps {seed}"), side_by_side(seed, &steps, 27))));
    for (name, problem) in problems {
        let gap = |seconds: u64| {
            let options = Options { time_limit: Some(Duration::from_secs(seconds)), ..with(Effort::Exact) };
            let certificate = solve(&problem, &options).expect("can be packed").certificate;
            format!("{:.3} %", 100.0 * (certificate.ratio() - 1.0))
        };
        println!("| {name} | {} | {} |", problem.items.len(), [1, 10, 60].map(gap).join(" | "));
    }
}
