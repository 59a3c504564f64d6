//! Statistics as a table, in the layout of PyTorch's `memory_summary`.

use std::fmt::Write;

use super::{MemoryStats, Stat, Tally};
use crate::units::Bytes;

const WIDTH: usize = 79;

/// Formats the statistics of `owner` as text: one row per number, then one section per tally in `parts`
/// (bytes by class and by layer), and the notes last.
pub fn memory_summary(
    owner: &str,
    stats: &MemoryStats,
    parts: &[(&str, &Tally)],
    notes: &[String],
) -> String {
    let mut out = String::new();
    rule(&mut out, '=');
    centred(&mut out, &format!("wgrad memory summary, {owner}"));
    rule(&mut out, '-');
    centred(
        &mut out,
        &format!("OOMs: {}     allocation retries: {}", stats.num_ooms, stats.num_alloc_retries),
    );
    rule(&mut out, '=');
    let cells = ["Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"].map(str::to_owned);
    line(&mut out, "Metric", &cells);
    rule(&mut out, '-');
    let bytes = [
        ("Allocated memory", &stats.allocated),
        ("Active memory", &stats.active),
        ("Requested memory", &stats.requested),
        ("Reserved memory", &stats.reserved),
        ("Non-releasable memory", &stats.inactive_split),
    ];
    for (name, stat) in bytes {
        line(&mut out, name, &cells_of(stat, |n| Bytes(n).to_string()));
    }
    rule(&mut out, '-');
    for (name, stat) in [("Allocations", &stats.allocations), ("Segments", &stats.segments)] {
        line(&mut out, name, &cells_of(stat, |n| n.to_string()));
    }
    for (title, tally) in parts.iter().filter(|(_, tally)| tally.iter().next().is_some()) {
        rule(&mut out, '-');
        centred(&mut out, title);
        for (label, stat) in tally.iter() {
            let label = if label.is_empty() { "(outside of layers)" } else { label };
            line(&mut out, label, &cells_of(stat, |n| Bytes(n).to_string()));
        }
    }
    rule(&mut out, '=');
    for note in notes {
        centred(&mut out, note);
    }
    if !notes.is_empty() {
        rule(&mut out, '=');
    }
    out
}

fn cells_of(stat: &Stat, text: impl Fn(u64) -> String) -> [String; 4] {
    [stat.current, stat.peak, stat.allocated, stat.freed].map(text)
}

// Writing to a string cannot fail.

fn rule(out: &mut String, sign: char) {
    let _ = writeln!(out, "|{}|", sign.to_string().repeat(WIDTH - 2));
}

fn centred(out: &mut String, text: &str) {
    let _ = writeln!(out, "|{text:^width$}|", width = WIDTH - 2);
}

/// Writes one row. A long label is truncated at its start, because the end of a layer's path is more
/// specific.
fn line(out: &mut String, label: &str, cells: &[String; 4]) {
    let skip = label.chars().count().saturating_sub(23);
    let label = if skip > 0 {
        format!("…{}", label.chars().skip(skip + 1).collect::<String>())
    } else {
        label.into()
    };
    let [a, b, c, d] = cells;
    let _ = writeln!(out, "| {label:<23} |{a:>11} |{b:>11} |{c:>11} |{d:>11} |");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_as_wide_as_the_others() {
        let mut stats = MemoryStats::default();
        stats.allocated.add(5 << 40);
        let mut tally = Tally::default();
        tally.of("").add(7);
        tally.of("blocks.11.attention.projection.weight").add(1 << 20);
        let text = memory_summary("a device", &stats, &[("by layer", &tally)], &["a note".to_owned()]);
        assert!(text.lines().all(|line| line.chars().count() == WIDTH), "{text}");
        assert!(text.contains("| …ion.projection.weight  |") || text.contains("…"), "{text}");
        assert!(text.contains("5.0 TiB") && text.contains("(outside of layers)"));
    }
}
