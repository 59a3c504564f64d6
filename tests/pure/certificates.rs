//! Checks the planner's certificates against independent results: the lowest height of small problems by
//! brute force, that of larger ones by construction, and the maximum of live bytes, counted separately.

use std::time::Duration;

use crate::support::problem_files::{committed_problems, csv_files};
use crate::support::problems::{
    Draws, GAPS, Known, brute_force, composed, cut, live_bytes, small_items, with_gap,
};
use wgrad::memory::planner::{
    Certificate, Effort, Item, Options, Problem, lower_bound, read_problem, solve, validate, write_problem,
};

/// Returns options for every effort, and options that end planning right after the first packing.
fn ways(problem: &Problem) -> Vec<(&'static str, Options)> {
    let effort = |effort| Options { effort, ..Options::default() };
    let all = problem.items.iter().map(|item| item.size.next_multiple_of(item.alignment)).sum();
    vec![
        ("no time", Options { time_limit: Some(Duration::ZERO), ..Options::default() }),
        ("anything suffices", Options { capacity: Some(all), ..Options::default() }),
        ("fast", effort(Effort::Fast)),
        ("balanced", effort(Effort::Balanced)),
        ("exact", effort(Effort::Exact)),
    ]
}

/// Returns the certificate of a problem. Its packing must be valid, what it proves must be true, and what is
/// unproved must not be called optimal.
fn certified(name: &str, known: &Known, options: &Options) -> Certificate {
    let Known { problem, optimum } = known;
    let packing = solve(problem, options).unwrap_or_else(|error| panic!("{name}: {error}"));
    validate(problem, &packing.solution).unwrap_or_else(|error| panic!("{name}: {error}"));
    let Certificate { height, lower_bound, gap, optimal, .. } = packing.certificate;
    assert_eq!(height, packing.solution.height(), "{name}");
    assert!(lower_bound <= *optimum, "{name}: {lower_bound} is said to be a bound, and {optimum} can be had");
    assert!(height >= *optimum, "{name}: {height} is below {optimum}, the lowest there is");
    assert_eq!((gap, optimal), (height - lower_bound, height == lower_bound), "{name}");
    packing.certificate
}

/// Whether planning ends before the search, when only the bound of live bytes is known.
fn is_unsearched(way: &str) -> bool {
    matches!(way, "no time" | "anything suffices")
}

/// Whether the planner searches until the optimum is proved.
fn is_thorough(way: &str) -> bool {
    way == "exact"
}

#[test]
fn certificates_of_small_problems_match_brute_force() {
    let mut above = 0;
    for seed in 0..120 {
        let mut draws = Draws::new(seed);
        let mut items = small_items(&mut draws, 5 + seed as usize % 3);
        for item in &mut items {
            item.alignment = [1, 1, 2, 4][if seed % 2 == 0 { 0 } else { draws.below(4) as usize }];
        }
        if seed % 5 == 0 {
            items.push(Item::new("held", 2, 5, 3).fixed_at(0, draws.below(9)));
        }
        let known = Known { optimum: brute_force(&items), problem: Problem::new(items) };
        let live = live_bytes(&known.problem.items);
        assert_eq!(lower_bound(&known.problem.items), Some(live), "seed {seed}");
        assert!(
            live <= known.optimum,
            "seed {seed}: {live} bytes are alive in a packing of {}",
            known.optimum
        );
        for (way, options) in ways(&known.problem) {
            let certificate = certified(&format!("seed {seed}, {way}"), &known, &options);
            if is_unsearched(way) {
                assert_eq!(certificate.lower_bound, live, "seed {seed}, {way}: nothing was searched");
                above += u32::from(certificate.height > known.optimum);
            }
            if is_thorough(way) {
                assert!(certificate.optimal, "seed {seed}: {certificate:?}");
            }
        }
    }
    // The checks above could fail: there are packings that are not the lowest.
    assert!(above >= 20, "only {above} packings could have been called optimal by mistake");
}

#[test]
fn only_search_closes_the_gap_between_bound_and_height() {
    for seed in GAPS {
        let known = with_gap(seed);
        let live = live_bytes(&known.problem.items);
        for (way, options) in ways(&known.problem) {
            let certificate = certified(&format!("seed {seed}, {way}"), &known, &options);
            assert!(
                !is_unsearched(way) || certificate.lower_bound == live,
                "seed {seed}, {way}: {certificate:?}"
            );
            assert!(!is_unsearched(way) || !certificate.optimal, "seed {seed}, {way}: nothing proves that");
            assert!(!is_thorough(way) || certificate.optimal, "seed {seed}: {certificate:?}");
        }
    }
}

#[test]
fn certificates_of_several_arenas_and_buffers_are_valid() {
    let mut cut_up = 0;
    for seed in 0..40 {
        let mut draws = Draws::new(2000 + seed);
        let [here, there] = [(); 2].map(|()| small_items(&mut draws, 6));
        let optimum = brute_force(&here) + brute_force(&there);
        let mut items = here;
        items.extend(there.into_iter().map(|item| item.in_arena(1)));
        let known = Known { optimum, problem: Problem::new(items) };
        for (way, options) in ways(&known.problem) {
            certified(&format!("seed {seed} in two arenas, {way}"), &known, &options);
        }
        // One arena over buffers of limited size: the bound is the maximum of live bytes, without padding of
        // each buffer's topmost item.
        let mut items = small_items(&mut draws, 7);
        items.iter_mut().for_each(|item| item.alignment = 8);
        let limit = 6 + draws.below(20);
        let problem = Problem { items, max_item: None, max_arena: Some(limit) };
        let unpadded: Vec<Item> = problem.items.iter().cloned().map(|item| item.aligned(1)).collect();
        for (way, options) in ways(&problem) {
            let packing = solve(&problem, &options).unwrap_or_else(|e| panic!("seed {seed}, {way}: {e}"));
            validate(&problem, &packing.solution).unwrap_or_else(|e| panic!("seed {seed}, {way}: {e}"));
            let buffers = packing.solution.arenas.len();
            let least = if buffers == 1 { live_bytes(&problem.items) } else { live_bytes(&unpadded) };
            let Certificate { height, lower_bound, .. } = packing.certificate;
            assert!(least <= lower_bound && lower_bound <= height, "seed {seed}, {way}: {least} {packing:?}");
            cut_up += u32::from(buffers > 1);
        }
    }
    assert!(cut_up >= 40, "only {cut_up} packings go over several buffers");
}

/// Two buffers that each hold one item of 10 bytes take 20 bytes; one buffer for both would take 26.
#[test]
fn bound_of_one_buffer_is_not_applied_to_several() {
    let items = [10, 10].map(|size| Item::new("half", 0, 1, size).aligned(16)).to_vec();
    let problem = Problem { items, max_item: None, max_arena: Some(15) };
    let certificate = solve(&problem, &Options::default()).expect("packs").certificate;
    assert_eq!((certificate.height, certificate.lower_bound, certificate.optimal), (20, 20, true));
}

#[test]
fn lower_bound_of_cut_rectangles_is_the_optimum() {
    let mut missed = 0;
    for seed in 0..24 {
        let mut draws = Draws::new(3000 + seed);
        let pieces = [20, 60, 200][seed as usize % 3];
        let items = cut(&mut draws, (0, 64), 1 << 12, pieces);
        let known = Known { optimum: 1 << 12, problem: Problem::new(items) };
        assert_eq!(live_bytes(&known.problem.items), known.optimum, "seed {seed}");
        for (way, options) in ways(&known.problem).into_iter().filter(|(way, _)| !is_thorough(way)) {
            let certificate = certified(&format!("seed {seed}, {way}"), &known, &options);
            assert_eq!(certificate.lower_bound, known.optimum, "seed {seed}, {way}");
            missed += u32::from(!certificate.optimal);
        }
    }
    assert!(missed >= 20, "only {missed} packings could have been called optimal by mistake");
}

/// Name, lowest height and maximum of live bytes of the problems in `benches/problems/known`.
const COMMITTED: [(&str, u64, u64); 9] = [
    ("gap-0", 5, 4),
    ("gap-1", 6, 5),
    ("gap-2", 8, 7),
    ("gap-3", 7, 6),
    ("composed-0", 239, 227),
    ("composed-1", 343, 334),
    ("composed-2", 351, 350),
    ("composed-3", 354, 315),
    ("rectangle", 65536, 65536),
];

/// Generates the problem of a name.
fn generated(name: &str) -> Known {
    let gap = |i: u64| with_gap(GAPS[i as usize]);
    let number = || name.rsplit('-').next().and_then(|digit| digit.parse::<u64>().ok()).expect("a number");
    match name.split('-').next() {
        Some("gap") => gap(number()),
        Some("composed") => {
            let cores: Vec<Known> = (0..3).map(|i| gap((number() + i) % 4)).collect();
            composed(number(), &cores, [12, 40, 90, 160][number() as usize])
        }
        _ => {
            let items = cut(&mut Draws::new(5000), (0, 100), 1 << 16, 120);
            Known { problem: Problem::new(items), optimum: 1 << 16 }
        }
    }
}

fn csv_of(problem: &Problem) -> String {
    let mut text = Vec::new();
    write_problem(problem, &mut text).expect("memory");
    String::from_utf8(text).expect("UTF-8")
}

#[test]
#[ignore = "writes benches/problems/known anew"]
fn write_committed_problems() {
    let folder = committed_problems("known");
    for (name, ..) in COMMITTED {
        let known = generated(name);
        std::fs::write(folder.join(format!("{name}.csv")), csv_of(&known.problem)).expect("written");
        println!("(\"{name}\", {}, {}),", known.optimum, live_bytes(&known.problem.items));
    }
}

#[test]
fn certificates_of_committed_problems_match_known_optima() {
    let folder = committed_problems("known");
    assert_eq!(csv_files(&folder).len(), COMMITTED.len());
    let mut unproved = 0;
    for (name, optimum, live) in COMMITTED {
        let file = std::fs::read_to_string(folder.join(format!("{name}.csv"))).expect("committed");
        let problem = read_problem(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(live_bytes(&problem.items), live, "{name}");
        assert_eq!(lower_bound(&problem.items), Some(live), "{name}");
        assert!(problem.items.len() > 8 || brute_force(&problem.items) == optimum, "{name}");
        // The optimum is known from how the problem is generated.
        let again = generated(name);
        assert_eq!((file, optimum), (csv_of(&again.problem), again.optimum), "{name}");
        let known = Known { problem, optimum };
        for (way, options) in ways(&known.problem).into_iter().filter(|(way, _)| !is_thorough(way)) {
            let certificate = certified(&format!("{name}, {way}"), &known, &options);
            unproved += u32::from(!certificate.optimal);
            println!("{name}, {way}: {certificate:?}, lowest {optimum}");
            if way == "balanced" {
                let ratio = certificate.height as f64 / optimum as f64;
                assert!(ratio <= 1.01, "{name}: {ratio:.4} of the lowest height");
            }
        }
    }
    assert!(unproved >= 9, "only {unproved} packings could have been called optimal by mistake");
}

/// Training steps of this library are packed to the maximum of live bytes, like the public problems where
/// those are available.
#[test]
fn committed_training_steps_are_packed_to_their_bound() {
    for path in csv_files(&committed_problems("")) {
        let file = std::fs::read_to_string(&path).expect("readable");
        let problem = read_problem(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let known = Known { optimum: live_bytes(&problem.items), problem };
        for (way, options) in ways(&known.problem) {
            let name = format!("{}, {way}", path.display());
            let certificate = solve(&known.problem, &options).expect("packs").certificate;
            assert_eq!(certificate.lower_bound, known.optimum, "{name}");
            assert!(certificate.optimal || is_unsearched(way), "{name}: {certificate:?}");
        }
    }
}
