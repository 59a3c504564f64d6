//! The picture of docs/scale.md, drawn from its table of ranks.

use std::fmt::Write as _;

use super::{parts, path, read};

const FILE: &str = "docs/scale.svg";
/// Width and height of a panel, and the distances between panels.
const PANEL: [f64; 2] = [250.0, 150.0];
const GAP: [f64; 2] = [60.0, 64.0];
const LEFT: f64 = 52.0;
const TOP: f64 = 62.0;
/// Colours of the lines, apart for people who see few colours, and their dashes.
const LINES: [(&str, &str); 3] = [("#0072b2", ""), ("#d55e00", "7 3"), ("#009e73", "2 3")];
const STYLE: &str = ".paper{fill:#fff}.ink{fill:#1a1a1a}.soft{fill:#555}.grid{stroke:#ddd}@media (prefers-color-scheme:dark)\
                     {.paper{fill:#181a1b}.ink{fill:#eee}.soft{fill:#aaa}.grid{stroke:#3a3d3e}}";

/// The rows of a network in the table: its title, and for each line the cells of all numbers of ranks.
struct Network {
    title: String,
    lines: Vec<(String, Vec<String>)>,
}

/// Returns the numbers of ranks and the networks.
fn table(text: &str) -> (Vec<String>, Vec<Network>) {
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    let mut rows = rows.collect::<Vec<_>>().into_iter();
    let header = rows.next().expect("a header");
    let mut networks: Vec<Network> = Vec::new();
    for row in rows {
        if !row[0].is_empty() {
            networks.push(Network { title: row[0].replace('`', ""), lines: Vec::new() });
        }
        networks.last_mut().expect("a title first").lines.push((row[1].clone(), row[2..].to_vec()));
    }
    (header[2..].iter().map(|cell| cell.replace(" rank", "")).collect(), networks)
}

/// Returns the number at the beginning of a cell, in GB.
fn gigabytes(cell: &str) -> f64 {
    let mut words = cell.split([' ', ',']);
    let number: f64 = words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{cell}"));
    if words.next() == Some("MB") { number / 1e3 } else { number }
}

/// Returns the percentage at the end of a cell.
fn percent(cell: &str) -> f64 {
    let word = cell.trim_end_matches(" %").rsplit(' ').next();
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{cell}"))
}

/// The largest number of an axis, a round one.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|top| *top >= value)
        .expect("ten times")
}

fn text(out: &mut String, [x, y]: [f64; 2], anchor: &str, class: &str, text: &str) {
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>")
        .expect("text");
}

fn legend(out: &mut String, y: f64, title: &str, names: &[&str]) {
    text(out, [LEFT, y], "start", "ink", title);
    let mut x = LEFT + 270.0;
    for (name, (colour, dash)) in names.iter().zip(LINES) {
        let (middle, end) = (y - 4.0, x + 28.0);
        writeln!(
            out,
            "<path d=\"M{x:.1} {middle:.1}H{end:.1}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>"
        )
        .expect("text");
        text(out, [end + 6.0, y], "start", "soft", name);
        x += 40.0 + 7.5 * name.len() as f64;
    }
}

/// Draws one panel with lines over the numbers of ranks, at equal distances.
fn panel(out: &mut String, [x, y]: [f64; 2], ranks: &[String], top: f64, lines: &[Vec<f64>]) {
    let [width, height] = PANEL;
    for share in [0.0, 0.5, 1.0] {
        let at = y + height * (1.0 - share);
        writeln!(out, "<path d=\"M{x:.1} {at:.1}h{width}\" class=\"grid\"/>").expect("text");
        text(out, [x - 6.0, at + 4.0], "end", "soft", &(top * share).to_string());
    }
    let across = |i: usize| x + width * (i as f64 + 0.5) / ranks.len() as f64;
    for (i, count) in ranks.iter().enumerate() {
        text(out, [across(i), y + height + 16.0], "middle", "soft", count);
    }
    for (line, (colour, dash)) in lines.iter().zip(LINES) {
        let points: Vec<String> = line
            .iter()
            .enumerate()
            .map(|(i, value)| format!("{:.1} {:.1}", across(i), y + height * (1.0 - value / top)))
            .collect();
        writeln!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            points.join("L")
        )
        .expect("text");
    }
}

fn picture(document: &str) -> String {
    let [_, of_ranks, _] = parts("docs/scale.md", document, "scale");
    let (ranks, networks) = table(of_ranks);
    let across = |i: usize| LEFT + i as f64 * (PANEL[0] + GAP[0]);
    let below = TOP + PANEL[1] + GAP[1] + 18.0;
    let (width, height) = (across(networks.len()) - 20.0, below + PANEL[1] + 40.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n"
    );
    let links: Vec<&str> = networks[0].lines[3..].iter().map(|(name, _)| name.as_str()).collect();
    legend(
        &mut out,
        20.0,
        "GB of a rank over the number of ranks",
        &["nothing sharded", "optimizer sharded", "parameters sharded"],
    );
    legend(&mut out, below - 42.0, "speed of N ranks, in percent of N", &links);
    for (i, Network { title, lines }) in networks.iter().enumerate() {
        assert_eq!(lines.len(), 6, "{title}");
        let of = |range: std::ops::Range<usize>, number: fn(&str) -> f64| -> Vec<Vec<f64>> {
            lines[range].iter().map(|(_, cells)| cells.iter().map(|cell| number(cell)).collect()).collect()
        };
        let (bytes, speeds) = (of(0..3, gigabytes), of(3..6, percent));
        let top = round_up(bytes.iter().flatten().copied().fold(0.0, f64::max));
        text(&mut out, [across(i), TOP - 16.0], "start", "ink", title);
        panel(&mut out, [across(i), TOP], &ranks, top, &bytes);
        text(&mut out, [across(i), below - 16.0], "start", "ink", title);
        panel(&mut out, [across(i), below], &ranks, 100.0, &speeds);
    }
    out + "</svg>\n"
}

#[test]
fn the_picture_of_ranks_is_that_of_the_table() {
    let expected = picture(&read("docs/scale.md"));
    if std::env::var("WGRAD_TABLES").as_deref() == Ok("write") {
        std::fs::write(path(FILE), expected).unwrap_or_else(|e| panic!("{FILE}: {e}"));
        return;
    }
    assert!(
        read(FILE) == expected,
        "{FILE} is not that of the table in docs/scale.md; scripts/tables.sh draws it"
    );
}
