//! The dispatches of a plan, with modelled times on a card.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::table::Table;
use crate::compile::PlannedLaunch;
use crate::json::Json;
use crate::limits::Card;

/// Characters of a kernel with its variant, and of an operation with its layer: rows stay within 100 columns.
const KERNEL: usize = 38;
const LAYER: usize = 26;
const WORST: usize = 10;

/// Dispatches that are shown as one row, of which `launch` is the first.
struct Group<'a> {
    launch: &'a PlannedLaunch,
    count: usize,
    seconds: f64,
    flops: u64,
    bytes: u64,
}

/// Returns the dispatches with equal `key` together, in the order of their first ones.
fn grouped<K: Ord>(launches: &[PlannedLaunch], key: impl Fn(&PlannedLaunch) -> K) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: BTreeMap<K, usize> = BTreeMap::new();
    for launch in launches {
        let i = *known.entry(key(launch)).or_insert_with(|| {
            groups.push(Group { launch, count: 0, seconds: 0.0, flops: 0, bytes: 0 });
            groups.len() - 1
        });
        groups[i].count += 1;
        groups[i].seconds += launch.seconds;
        groups[i].flops += launch.job.flops;
        groups[i].bytes += launch.job.bytes;
    }
    groups
}

/// Returns equal dispatches together.
fn equal(launches: &[PlannedLaunch]) -> Vec<Group<'_>> {
    grouped(launches, |PlannedLaunch { kernel, variant, job, .. }| {
        (kernel.clone(), variant.clone(), job.workgroups, job.threads, job.flops, job.bytes)
    })
}

/// Returns three tables: the dispatches, equal ones together; the kernels; and the dispatches that lose most time
/// to idle units and launches.
pub fn launches(launches: &[PlannedLaunch], card: &Card) -> String {
    let seconds: f64 = launches.iter().map(|launch| launch.seconds).sum();
    let full: f64 = launches.iter().map(|launch| launch.full_rate_s).sum();
    let low = launches.iter().filter(|launch| launch.waves < 1.0);
    let (few, low_s) = low.fold((0, 0.0), |(count, sum), launch| (count + 1, sum + launch.seconds));
    let mut text = format!(
        "{} dispatches, {} ms modelled on {}: {} units, {} TFLOP/s, {} GB/s, {} µs a launch\n",
        launches.len(),
        number(1e3 * seconds),
        card.name,
        card.units,
        number(card.flops_per_s / 1e12),
        number(card.bytes_per_s / 1e9),
        number(1e6 * card.launch_s),
    );
    let share = |part: f64| 100.0 * part / seconds.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        text,
        "full rates take {:.1} % of that; {few} dispatches have fewer workgroups than the card units: {:.1} %",
        share(full),
        share(low_s)
    );
    text.push_str("\ndispatches in order, equal ones together\n");
    text.push_str(&in_order(launches));
    text.push_str("\nby kernel, longest first\n");
    text.push_str(&by_kernel(launches, seconds));
    text.push_str("\nmost time lost to idle units and the launch\n");
    text.push_str(&worst(launches));
    text
}

fn in_order(launches: &[PlannedLaunch]) -> String {
    let columns = ["groups", "thr.", "shared", "GFLOP", "MB", "waves", "µs"].map(|name| (name, false));
    let mut table = Table::new(&[&[("×", false), ("kernel, variant", true)], &columns[..]].concat());
    for Group { launch, count, .. } in equal(launches) {
        let job = launch.job;
        table.row([
            count.to_string(),
            named(launch),
            job.workgroups.to_string(),
            job.threads.to_string(),
            job.shared_bytes.to_string(),
            number(job.flops as f64 / 1e9),
            number(job.bytes as f64 / 1e6),
            number(launch.waves),
            number(1e6 * launch.seconds),
        ]);
    }
    table.lines()
}

fn by_kernel(launches: &[PlannedLaunch], all_s: f64) -> String {
    let mut kernels = grouped(launches, |launch| launch.kernel.clone());
    kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let columns = ["×", "GFLOP", "GB", "ms", "share"].map(|name| (name, false));
    let mut table = Table::new(&[&[("kernel", true)], &columns[..]].concat());
    for group in kernels {
        table.row([
            cut(&group.launch.kernel, KERNEL),
            group.count.to_string(),
            number(group.flops as f64 / 1e9),
            number(group.bytes as f64 / 1e9),
            number(1e3 * group.seconds),
            format!("{:.1} %", 100.0 * group.seconds / all_s.max(f64::MIN_POSITIVE)),
        ]);
    }
    table.lines()
}

fn worst(launches: &[PlannedLaunch]) -> String {
    let lost = |group: &Group| group.seconds - group.count as f64 * group.launch.full_rate_s;
    let mut groups = equal(launches);
    groups.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
    let numbers = ["groups", "waves", "ms", "lost"].map(|name| (name, false));
    let texts = [("×", false), ("kernel, variant", true), ("of", true)];
    let mut table = Table::new(&[&texts[..], &numbers].concat());
    for group in groups.into_iter().take(WORST) {
        let launch = group.launch;
        let place = [launch.op, &launch.layer].join(" ");
        table.row([
            group.count.to_string(),
            named(launch),
            cut(place.trim_end(), LAYER),
            launch.job.workgroups.to_string(),
            number(launch.waves),
            number(1e3 * group.seconds),
            number(1e3 * lost(&group)),
        ]);
    }
    table.lines()
}

/// Returns the kernel with its variant, as far as there is room.
fn named(launch: &PlannedLaunch) -> String {
    match launch.variant.as_str() {
        "" => cut(&launch.kernel, KERNEL),
        variant => cut(&format!("{}, {variant}", launch.kernel), KERNEL),
    }
}

/// Returns a text of at most `most` characters, the middle of a longer one left out.
fn cut(text: &str, most: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= most {
        return text.to_owned();
    }
    let (head, tail) = ((most - 1).div_ceil(2), (most - 1) / 2);
    all[..head].iter().chain(&['…']).chain(&all[all.len() - tail..]).collect()
}

/// Returns a number with three digits, or all before the point.
fn number(x: f64) -> String {
    match x {
        _ if x >= 99.95 => format!("{x:.0}"),
        _ if x >= 9.995 => format!("{x:.1}"),
        _ if x >= 0.005 => format!("{x:.2}"),
        _ if x > 0.0 => "<0.01".to_owned(),
        _ => "0".to_owned(),
    }
}

/// Returns the dispatches as JSON.
pub fn launches_json(launches: &[PlannedLaunch]) -> Json {
    let one = |launch: &PlannedLaunch| {
        Json::object([
            ("kernel", launch.kernel.as_str().into()),
            ("op", launch.op.into()),
            ("layer", launch.layer.as_str().into()),
            ("workgroups", launch.job.workgroups.into()),
            ("threads", u64::from(launch.job.threads).into()),
            ("flops", launch.job.flops.into()),
            ("bytes", launch.job.bytes.into()),
            ("waves", launch.waves.into()),
            ("modelled_us", Json::from(1e6 * launch.seconds)),
        ])
    };
    let seconds: f64 = launches.iter().map(|launch| launch.seconds).sum();
    Json::object([
        ("launches", Json::List(launches.iter().map(one).collect())),
        ("dispatches", launches.len().into()),
        ("modelled_ms", Json::from(1e3 * seconds)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle_and_numbers_keep_three_digits() {
        assert_eq!(cut("matmul", 6), "matmul");
        assert_eq!(cut("matmul_tiled64", 6), "mat…64");
        let texts = [0.0, 1e-6, 0.25, 9.996, 12.34, 99.96, 12_345.6].map(number);
        assert_eq!(texts, ["0", "<0.01", "0.25", "10.0", "12.3", "100", "12346"]);
    }
}
