//! Draws address over time as SVG, with one panel per contender.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::replay::{Contender, Placed, place};
use super::trace::Trace;
use crate::units::Bytes;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 180.0;
const HEAD: f64 = 22.0;
const MARGIN: f64 = 8.0;

/// Draws where each contender places each block of the trace. Time is on the horizontal axis, with one step
/// of the trace as the unit; the address is on the vertical axis. All panels have the same scale, and the
/// line across each panel is the lower bound. A panel that would be higher than twice the bound is cut off
/// there, so that one bad contender does not flatten the others. Colours show sizes, from blue (small) to red
/// (large).
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
    let height = MARGIN + placed.len() as f64 * (HEAD + PANEL + MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        w = WIDTH + 2.0 * MARGIN,
    );
    let time = WIDTH / trace.steps.len().max(1) as f64;
    for (i, ((name, (blocks, reserved)), (base, height))) in placed.iter().zip(&bases).enumerate() {
        let y = MARGIN + i as f64 * (HEAD + PANEL + MARGIN);
        let ratio = *reserved as f64 / bound.max(1) as f64;
        let (text_y, panel_y, floor) = (y + 15.0, y + HEAD, PANEL);
        let note = if *height > cut { " (cut off)" } else { "" };
        // Writing to a string cannot fail. The inner `svg` clips what extends beyond its panel.
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{text_y}\">{name}: {}, {ratio:.3} × lower bound{note}</text>\n\
             <svg y=\"{panel_y}\" width=\"{}\" height=\"{}\">",
            Bytes(*reserved),
            WIDTH + 2.0 * MARGIN,
            PANEL + 1.0
        );
        let mut boxes: BTreeMap<u32, String> = BTreeMap::new();
        for block in blocks {
            let address = base.get(&block.page).copied().unwrap_or(0) + block.offset;
            let (x, w) = (MARGIN + block.from as f64 * time, (block.until - block.from) as f64 * time);
            let (bottom, h) = (address as f64 / top * PANEL, block.size as f64 / top * PANEL);
            let path = boxes.entry(block.size.max(1).ilog2()).or_default();
            let _ = write!(path, "M{x:.1} {:.1}h{w:.1}v{h:.1}h-{w:.1}z", floor - bottom - h);
        }
        for (octave, path) in boxes {
            let hue = 240.0 * f64::from(largest - octave) / f64::from((largest - smallest).max(1));
            let _ = writeln!(out, "<path fill=\"hsl({hue:.0},70%,60%)\" d=\"{path}\"/>");
        }
        let line = floor - bound as f64 / top * PANEL;
        let right = MARGIN + WIDTH;
        let _ = writeln!(
            out,
            "<path d=\"M{MARGIN} {floor:.1}H{right}M{MARGIN} {line:.1}H{right}\" stroke=\"black\" stroke-width=\"0.7\" \
             stroke-dasharray=\"4 3\"/></svg>"
        );
    }
    out.push_str("</svg>\n");
    Ok(out)
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
        assert_eq!(picture.matches("<text").count(), all.len());
        assert_eq!(picture.matches("h-").count(), 4 * all.len());
        assert!(picture.contains("best-fit: 5.0 KiB, 1.250 × lower bound"), "{picture}");
        let empty = svg(&Trace::default(), &all).expect("nothing to place");
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
