//! Draws plans as one deterministic SVG: address over time, with each tensor as a rectangle.

use std::fmt::{Arguments, Write};

use super::palette::{AGAIN, look};
use super::scene::{Band, Block, Scene};
use crate::compile::Plan;
use crate::graph::Class;
use crate::units::{Bytes, ticks};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
/// Top and bottom of the large panel.
const TOP: f64 = 92.0;
const FLOOR: f64 = 430.0;
/// Height of the large panel's bands and height of the row of small panels.
const BANDS: f64 = 56.0;
const SMALL: f64 = 150.0;
/// Rectangles lower than this many pixels are drawn as one path, without a tooltip of their own.
const TEXT_FROM: f64 = 0.8;

/// A plan and the name that distinguishes it from other plans: `naive`, `planned`.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// The name.
    pub name: &'a str,
    /// The plan.
    pub plan: &'a Plan,
}

/// Draws plans as an SVG. The last plan is drawn large. Time runs to the right, one unit per operation.
/// Addresses run upwards; the arenas are stacked, with persistent memory at the bottom. Unused memory is
/// hatched. The dark line is the number of bytes alive; its highest point is the lower bound. If there are
/// several plans, all of them are drawn below, side by side at the same scale.
///
/// Hovering over a rectangle shows the tensor's details. The SVG uses neither network nor scripts, and
/// follows the reader's light or dark theme.
pub fn picture(panels: &[Panel<'_>], title: &str) -> String {
    let scenes: Vec<Scene<'_>> = panels.iter().map(|panel| Scene::of(panel.plan)).collect();
    let Some(main) = scenes.last() else { return String::new() };
    let below = if panels.len() > 1 { SMALL + 52.0 } else { 0.0 };
    let mut svg = Svg { out: String::new(), height: FLOOR + BANDS + 18.0 + below };
    svg.head(main, title);
    let frame =
        Frame { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor: FLOOR, end: main.end, total: main.total };
    svg.axes(&frame);
    svg.ground(&frame);
    svg.blocks(main, &frame, true);
    svg.bands(&main.phases, &frame, FLOOR + 6.0);
    svg.bands(&main.layers, &frame, FLOOR + 24.0);
    svg.text((LEFT + frame.right) / 2.0, FLOOR + BANDS, "middle", "soft", "operations in their order");
    svg.live_line(main, &frame);
    svg.names(main, &frame);
    svg.peak(main, &frame);
    if panels.len() > 1 {
        svg.side_by_side(panels, &scenes);
    }
    svg.out.push_str("</svg>\n");
    svg.out
}

/// A panel of the drawing, with the times and addresses it shows.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    floor: f64,
    end: usize,
    total: u64,
}

impl Frame {
    fn x(&self, position: usize) -> f64 {
        self.left + (self.right - self.left) * position.min(self.end) as f64 / self.end as f64
    }

    fn y(&self, address: u64) -> f64 {
        self.floor - (self.floor - self.top) * address as f64 / self.total as f64
    }
}

struct Svg {
    out: String,
    height: f64,
}

impl Svg {
    /// Appends a line of SVG. Writing to a string cannot fail.
    fn line(&mut self, text: Arguments<'_>) {
        let _ = self.out.write_fmt(text);
        self.out.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    fn head(&mut self, main: &Scene<'_>, title: &str) {
        let height = self.height;
        self.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"system-ui,sans-serif\" font-size=\"12\">"
        ));
        self.line(format_args!("<style>{STYLE}</style>\n<defs>"));
        for class in Class::ALL {
            let look = look(class);
            self.pattern(class.name(), look.fill, look.pattern, look.pen, "0.5");
        }
        self.pattern("again", "none", AGAIN, "#000000", "0.6");
        self.line(format_args!(
            "<pattern id=\"hole\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" \
             class=\"paper\"/><path d=\"M-1 7L7 -1\" class=\"hatch\"/></pattern>\n</defs>"
        ));
        self.line(format_args!("<rect width=\"100%\" height=\"100%\" class=\"paper\"/>"));
        let planned = Bytes(main.plan.peak_bytes());
        self.line(format_args!(
            "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\" class=\"ink\">{}: {planned} planned</text>",
            escape(title)
        ));
        self.legend(main);
    }

    fn pattern(&mut self, id: &str, fill: &str, path: &str, pen: &str, opacity: &str) {
        self.line(format_args!(
            "<pattern id=\"{id}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect width=\"8\" height=\"8\" \
             fill=\"{fill}\"/><path d=\"{path}\" stroke=\"{pen}\" stroke-opacity=\"{opacity}\" fill=\"none\"/></pattern>"
        ));
    }

    fn legend(&mut self, main: &Scene<'_>) {
        let classes = Class::ALL.map(|class| (class.name(), class.name()));
        let again = main.blocks.iter().any(|block| block.tensor.again);
        let more = [("again", "computed again"), ("hole", "hole")];
        let more = more.into_iter().filter(|(id, _)| *id != "again" || again);
        let mut x = LEFT;
        for (id, label) in classes.into_iter().chain(more) {
            if id == "again" {
                self.line(format_args!(
                    "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"14\" fill=\"url(#activations)\"/>"
                ));
            }
            self.line(format_args!(
                "<rect x=\"{x}\" y=\"36\" width=\"14\" height=\"14\" fill=\"url(#{id})\" class=\"edge\"/>"
            ));
            self.text(x + 19.0, 47.0, "start", "ink", label);
            x += 36.0 + 6.6 * label.len() as f64;
        }
        self.line(format_args!("<path d=\"M{x} 43h18\" class=\"live\"/>"));
        self.text(x + 23.0, 47.0, "start", "ink", "bytes alive");
    }

    fn axes(&mut self, frame: &Frame) {
        for address in ticks(frame.total) {
            let y = frame.y(address);
            self.line(format_args!("<path d=\"M{LEFT} {y:.1}H{}\" class=\"rule\"/>", frame.right));
            self.text(LEFT - 6.0, y + 4.0, "end", "soft", &Bytes(address).to_string());
        }
    }

    /// Draws all memory of the plan as unused: the parts that blocks do not cover are holes.
    fn ground(&mut self, frame: &Frame) {
        let (x, y) = (frame.left, frame.y(frame.total));
        let (w, h) = (frame.right - x, frame.floor - y);
        self.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"url(#hole)\"/>"
        ));
    }

    /// Draws the rectangles by class; the small ones of a class are one path.
    fn blocks(&mut self, scene: &Scene<'_>, frame: &Frame, texts: bool) {
        for class in Class::ALL {
            let name = class.name();
            let of_class = || scene.blocks.iter().filter(|block| block.tensor.class == class);
            let large = |block: &Block| texts && rectangle(block, frame).3 >= TEXT_FROM;
            self.line(format_args!("<g fill=\"url(#{name})\" class=\"edge\">"));
            let small: String = of_class().filter(|block| !large(block)).map(|b| outline(b, frame)).collect();
            if !small.is_empty() {
                self.line(format_args!("<path d=\"{small}\" stroke=\"none\"/>"));
            }
            for block in of_class().filter(|block| large(block)) {
                let (x, y, w, h) = rectangle(block, frame);
                let told = escape(&tell(block));
                self.line(format_args!(
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"><title>{told}</title></rect>"
                ));
            }
            self.line(format_args!("</g>"));
        }
        let again = scene.blocks.iter().filter(|block| block.tensor.again);
        let again: String = again.map(|block| outline(block, frame)).collect();
        if !again.is_empty() {
            self.line(format_args!("<path d=\"{again}\" fill=\"url(#again)\" pointer-events=\"none\"/>"));
        }
    }

    /// Draws the names of blocks that are large enough.
    fn names(&mut self, scene: &Scene<'_>, frame: &Frame) {
        for block in &scene.blocks {
            let (x, y, w, h) = rectangle(block, frame);
            let name = escape(&block.tensor.name);
            if h > 13.0 && w > 6.6 * name.chars().count() as f64 + 8.0 {
                let (pen, fill) = (look(block.tensor.class).pen, look(block.tensor.class).fill);
                let (tx, ty) = (x + 5.0, y + h / 2.0 + 4.0);
                self.line(format_args!(
                    "<text x=\"{tx:.1}\" y=\"{ty:.1}\" font-size=\"11\" fill=\"{pen}\" stroke=\"{fill}\" stroke-width=\"3\" \
                     paint-order=\"stroke\" pointer-events=\"none\">{name}</text>"
                ));
            }
        }
    }

    fn bands(&mut self, bands: &[Band], frame: &Frame, y: f64) {
        for (i, Band { name, from, until }) in bands.iter().enumerate() {
            let (x, w) = (frame.x(*from), frame.x(*until) - frame.x(*from));
            let (shade, name) = (if i % 2 == 0 { "even" } else { "odd" }, escape(name));
            self.line(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{w:.1}\" height=\"14\" class=\"{shade}\"><title>{name}</title></rect>"
            ));
            if w > 6.4 * name.len() as f64 + 4.0 {
                let middle = x + w / 2.0;
                self.line(format_args!(
                    "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" class=\"ink\">{name}</text>",
                    y + 11.0
                ));
            }
        }
    }

    fn live_line(&mut self, scene: &Scene<'_>, frame: &Frame) {
        let mut path = String::new();
        for (position, live) in scene.live.iter().enumerate() {
            let letter = if position == 0 { 'M' } else { 'L' };
            let (x, until, y) = (frame.x(position), frame.x(position + 1), frame.y(*live));
            let _ = write!(path, "{letter}{x:.1} {y:.1}H{until:.1}");
        }
        self.line(format_args!("<path d=\"{path}\" class=\"halo\"/><path d=\"{path}\" class=\"live\"/>"));
    }

    /// Draws the position of the peak and the lower bound of any packing.
    fn peak(&mut self, scene: &Scene<'_>, frame: &Frame) {
        let (peak, live) = (&scene.plan.peak, scene.peak_live());
        let (y, x) = (frame.y(live), (frame.x(peak.position) + frame.x(peak.position + 1)) / 2.0);
        let (left, right, top, floor) = (frame.left, frame.right, frame.top - 10.0, frame.floor);
        self.line(format_args!("<path d=\"M{left} {y:.1}H{right}M{x:.1} {top}V{floor}\" class=\"bound\"/>"));
        self.line(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"dot\"/>"));
        let told = format!("peak and lower bound {} at {}", Bytes(live), peak.at);
        let wide = 6.4 * told.chars().count() as f64;
        self.text((x - 4.0).min(right - wide).max(left), top - 4.0, "start", "ink", &told);
    }

    /// Draws every plan at the scale of the largest.
    fn side_by_side(&mut self, panels: &[Panel<'_>], scenes: &[Scene<'_>]) {
        let most = scenes.iter().map(|scene| scene.total).max().unwrap_or(1);
        let gap = 24.0;
        let width = (WIDTH - LEFT - RIGHT + gap) / panels.len() as f64 - gap;
        let floor = self.height - 12.0;
        for (i, (panel, scene)) in panels.iter().zip(scenes).enumerate() {
            let left = LEFT + i as f64 * (width + gap);
            let top = floor - SMALL * scene.total as f64 / most as f64;
            let frame = Frame { left, right: left + width, top, floor, end: scene.end, total: scene.total };
            self.ground(&frame);
            self.blocks(scene, &frame, false);
            let told = format!("{}: {}", panel.name, Bytes(panel.plan.peak_bytes()));
            self.text(left, floor - SMALL - 8.0, "start", "ink", &told);
        }
        self.text(LEFT - 6.0, floor - SMALL + 8.0, "end", "soft", &Bytes(most).to_string());
    }
}

const STYLE: &str = ".paper{fill:#fff}.ink{fill:#000}.soft{fill:#444}.rule{stroke:#ddd}.hatch{stroke:#ccc}\
    .edge{stroke:#fff;stroke-width:.5}.even{fill:#d8d8d8}.odd{fill:#efefef}.dot{fill:#000;stroke:#fff}\
    .live{fill:none;stroke:#000;stroke-width:1.6}.halo{fill:none;stroke:#fff;stroke-width:3.6;stroke-opacity:.8}\
    .bound{stroke:#000;stroke-dasharray:5 3}\
    @media(prefers-color-scheme:dark){.paper{fill:#161616}.ink{fill:#f2f2f2}.soft{fill:#bbb}.rule{stroke:#333}\
    .hatch{stroke:#3c3c3c}.edge{stroke:#161616}.even{fill:#444}.odd{fill:#303030}.dot{fill:#fff;stroke:#000}\
    .live{stroke:#fff}.halo{stroke:#000}.bound{stroke:#fff}}";

/// Returns left, top, width and height of a block.
fn rectangle(block: &Block, frame: &Frame) -> (f64, f64, f64, f64) {
    let (x, y) = (frame.x(block.from), frame.y(block.address + block.tensor.bytes));
    (x, y, frame.x(block.until) - x, frame.y(block.address) - y)
}

/// Returns the rectangle of a block as a path.
fn outline(block: &Block, frame: &Frame) -> String {
    let (x, y, w, h) = rectangle(block, frame);
    format!("M{x:.1} {y:.1}h{w:.1}v{:.2}h-{w:.1}z", h.max(0.02))
}

/// Returns the tooltip of a tensor.
fn tell(block: &Block) -> String {
    let t = &block.tensor;
    let layer = if t.layer.is_empty() { String::new() } else { format!(", layer {}", t.layer) };
    let again = if t.again { ", computed again" } else { "" };
    format!(
        "{}: {} {}, {}, {}{layer}, operations {} to {}, {} at {}{again}",
        t.name,
        t.shape,
        t.dtype,
        Bytes(t.bytes),
        t.class,
        block.from,
        block.until.saturating_sub(1),
        t.region.arena,
        t.region.offset
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
