//! Draws address over time as SVG, with one panel per contender.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::replay::{Contender, Placed, place};
use super::trace::Trace;
use crate::units::{Bytes, ticks};

const WIDTH: f64 = 860.0;
const PANEL: f64 = 180.0;
const HEAD: f64 = 24.0;
const MARGIN: f64 = 10.0;
/// Space for the labels of the addresses.
const LEFT: f64 = 72.0;
/// Height of the legend above the panels, and of the label of the time axis below them.
const LEGEND: f64 = 34.0;
const FOOT: f64 = 22.0;

const STYLE: &str = ".paper{fill:#fff}.ink{fill:#000}.soft{fill:#444}.rule{stroke:#ddd}.bound{stroke:#000;stroke-dasharray:5 3}\
    .floor{stroke:#000}\
    @media(prefers-color-scheme:dark){.paper{fill:#161616}.ink{fill:#f2f2f2}.soft{fill:#bbb}.rule{stroke:#333}\
    .bound{stroke:#fff}.floor{stroke:#fff}}";

/// Draws where each contender places each block of the trace. Time is on the horizontal axis, with one step
/// of the trace as the unit; the address is on the vertical axis. All panels have the same scale, and the
/// dashed line across each panel is the lower bound. A panel that would be higher than twice the bound is cut
/// off there, so that one bad contender does not flatten the others. Colours show sizes, from blue (small) to
/// red (large). The picture follows the reader's light or dark theme.
///
/// Pages are stacked by number, each as high as it is ever filled. A pool that releases pages during the
/// trace may be drawn higher than its peak of reserved bytes.
///
/// # Errors
/// The errors of [`place`].
pub fn svg(trace: &Trace, contenders: &[Contender]) -> crate::Result<String> {
    let bound = trace.lower_bound();
    let placed: Vec<_> = contenders
        .iter()
        .map(|contender| Ok((contender.name, place(trace, *contender)?)))
        .collect::<crate::Result<_>>()?;
    let bases: Vec<_> = placed.iter().map(|(_, (blocks, _))| page_bases(blocks)).collect();
    let cut = bound.saturating_mul(2);
    let tallest = bases.iter().map(|(_, height)| (*height).min(cut)).max().unwrap_or(0);
    let top = tallest.max(bound).max(1) as f64;
    let sizes = placed.iter().flat_map(|(_, (blocks, _))| blocks).map(|block| block.size.max(1).ilog2());
    let (smallest, largest) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
    let height = MARGIN + LEGEND + placed.len() as f64 * (HEAD + PANEL + MARGIN) + FOOT;
    let (wide, right) = (LEFT + WIDTH + MARGIN, LEFT + WIDTH);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{height}\" viewBox=\"0 0 {wide} {height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n",
    );
    legend(&mut out, smallest, largest);
    let time = WIDTH / trace.steps.len().max(1) as f64;
    for (i, ((name, (blocks, reserved)), (base, height))) in placed.iter().zip(&bases).enumerate() {
        let y = MARGIN + LEGEND + i as f64 * (HEAD + PANEL + MARGIN);
        let ratio = *reserved as f64 / bound.max(1) as f64;
        let (text_y, panel_y, floor) = (y + 15.0, y + HEAD, PANEL);
        let note = if *height > cut { " (cut off)" } else { "" };
        // Writing to a string cannot fail. The inner `svg` clips what extends beyond its panel.
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{text_y}\" class=\"ink\" font-weight=\"bold\">{name}: {}, {ratio:.3} × lower bound{note}</text>",
            Bytes(*reserved),
        );
        for tick in ticks(top as u64) {
            let at = panel_y + floor - tick as f64 / top * PANEL;
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {at:.1}H{right}\" class=\"rule\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" class=\"soft\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                Bytes(tick)
            );
        }
        let _ = writeln!(out, "<svg y=\"{panel_y}\" width=\"{wide}\" height=\"{}\">", PANEL + 1.0);
        let mut boxes: BTreeMap<u32, String> = BTreeMap::new();
        for block in blocks {
            let address = base.get(&block.page).copied().unwrap_or(0) + block.offset;
            let (x, w) = (LEFT + block.from as f64 * time, (block.until - block.from) as f64 * time);
            let (bottom, h) = (address as f64 / top * PANEL, block.size as f64 / top * PANEL);
            let path = boxes.entry(block.size.max(1).ilog2()).or_default();
            let _ = write!(path, "M{x:.1} {:.1}h{w:.1}v{h:.1}h-{w:.1}z", floor - bottom - h);
        }
        for (octave, path) in boxes {
            let hue = hue(octave, smallest, largest);
            let _ = writeln!(out, "<path fill=\"hsl({hue:.0},70%,60%)\" d=\"{path}\"/>");
        }
        let line = floor - bound as f64 / top * PANEL;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {floor:.1}H{right}\" class=\"floor\"/><path d=\"M{LEFT} {line:.1}H{right}\" class=\"bound\"/></svg>"
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"soft\">time: {} events of the trace</text>\n</svg>",
        LEFT + WIDTH / 2.0,
        height - 8.0,
        trace.steps.len()
    );
    Ok(out)
}

/// Returns the hue of blocks of `1 << octave` bytes: blue for the smallest, red for the largest.
fn hue(octave: u32, smallest: u32, largest: u32) -> f64 {
    240.0 * f64::from(largest - octave) / f64::from((largest - smallest).max(1))
}

/// Draws the sizes of blocks that colours stand for, and the line of the bound.
fn legend(out: &mut String, smallest: u32, largest: u32) {
    let most = 10.min(largest - smallest + 1);
    let mut x = LEFT;
    for i in 0..most {
        let octave = smallest + (largest - smallest) * i / (most - 1).max(1);
        let hue = hue(octave, smallest, largest);
        let label = Bytes(1 << octave).to_string();
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"10\" width=\"12\" height=\"12\" fill=\"hsl({hue:.0},70%,60%)\"/>\
             <text x=\"{:.1}\" y=\"20\" class=\"ink\">{label}</text>",
            x + 16.0
        );
        x += 26.0 + 6.6 * label.len() as f64;
    }
    let _ = writeln!(
        out,
        "<path d=\"M{x:.1} 16h22\" class=\"bound\"/><text x=\"{:.1}\" y=\"20\" class=\"ink\">lower bound</text>",
        x + 28.0
    );
}

/// Returns the base address of each page when all pages are stacked, and the height of the stack.
fn page_bases(blocks: &[Placed]) -> (BTreeMap<u32, u64>, u64) {
    let mut heights: BTreeMap<u32, u64> = BTreeMap::new();
    for block in blocks {
        let height = heights.entry(block.page).or_default();
        *height = (*height).max(block.offset + block.size);
    }
    let mut next = 0;
    for height in heights.values_mut() {
        next += std::mem::replace(height, next);
    }
    (heights, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::replay::contenders;

    #[test]
    fn picture_has_a_panel_per_contender_and_a_box_per_block() {
        let text = "id,lower,upper,size\na,0,9,1024\nb,1,4,1024\nc,2,9,1024\nd,4,9,2048\n";
        let trace = Trace::parse(text).expect("valid");
        let all = contenders();
        let picture = svg(&trace, &all).expect("valid settings");
        assert_eq!(picture.matches("font-weight=\"bold\"").count(), all.len());
        assert_eq!(picture.matches("h-").count(), 4 * all.len());
        assert!(picture.contains("best-fit: 5.0 KiB, 1.250 × lower bound"), "{picture}");
        let empty = svg(&Trace::default(), &all).expect("nothing to place");
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
