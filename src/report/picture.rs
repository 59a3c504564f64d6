//! The picture of a plan: address over time, each storage a rectangle, as one deterministic SVG.

use std::fmt::Write;

use crate::graph::{Class, Phase};
use crate::plan::{Plan, Storage};
use crate::units::Bytes;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const TOP: f64 = 76.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 46.0;

/// Fill and pen of each class: told apart by lightness as well as by hue (Okabe & Ito's palette).
fn colours(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::Parameter => ("#0072b2", "#ffffff"),
        Class::Optimizer => ("#56b4e9", "#000000"),
        Class::Activation => ("#f0e442", "#000000"),
        Class::Gradient => ("#d55e00", "#ffffff"),
        Class::Workspace => ("#999999", "#000000"),
        Class::Input => ("#009e73", "#ffffff"),
    }
}

/// Draws a plan. Time runs to the right, one operation a unit; addresses run upwards, arenas on top of each other, what
/// lives from step to step at the bottom. The dark line is the number of bytes alive, its highest point the lower bound.
///
/// Hovering over a rectangle tells name, bytes, lifetime and place. Text only; no network, no scripts.
pub fn picture(plan: &Plan, title: &str) -> String {
    let mut drawing = Drawing::new(plan);
    drawing.frame(plan, title);
    for (i, storage) in plan.program.storages.iter().enumerate() {
        drawing.storage(plan, i, storage);
    }
    drawing.live_line(plan);
    drawing.out.push_str("</svg>\n");
    drawing.out
}

struct Drawing {
    out: String,
    /// First address of each arena when all are stacked, in the order of `Layout::arenas`.
    bases: Vec<u64>,
    total: u64,
    end: usize,
}

impl Drawing {
    fn new(plan: &Plan) -> Self {
        let mut total = 0;
        let mut bases = Vec::new();
        for (_, bytes) in plan.layout.arenas() {
            bases.push(total);
            total += bytes;
        }
        Self { out: String::new(), bases, total: total.max(1), end: plan.program.order.len().max(1) }
    }

    fn x(&self, position: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * position.min(self.end) as f64 / self.end as f64
    }

    fn y(&self, address: u64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * address as f64 / self.total as f64
    }

    fn base(&self, plan: &Plan, storage: usize) -> u64 {
        let arena = plan.layout.regions[storage].arena;
        let index = plan.layout.arenas().position(|(other, _)| other == arena);
        index.map_or(0, |i| self.bases[i])
    }

    /// A line of SVG. Writing to a string cannot fail.
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
        self.out.push('\n');
    }

    fn frame(&mut self, plan: &Plan, title: &str) {
        self.line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"system-ui,sans-serif\" font-size=\"12\">"
        ));
        self.line(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
        let (title, planned) = (escape(title), Bytes(plan.peak_bytes()));
        self.line(format_args!(
            "<text x=\"{LEFT}\" y=\"20\" font-size=\"15\" fill=\"#000\">{title}: {planned} planned</text>"
        ));
        for (i, class) in Class::ALL.into_iter().enumerate() {
            let x = LEFT + 118.0 * i as f64;
            let (fill, _) = colours(class);
            self.line(format_args!("<rect x=\"{x}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{fill}\"/>"));
            self.line(format_args!("<text x=\"{}\" y=\"44\" fill=\"#000\">{class}</text>", x + 18.0));
        }
        for step in 0..=4u64 {
            let address = self.total / 4 * step;
            let (y, right) = (self.y(address), WIDTH - RIGHT);
            self.line(format_args!("<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>"));
            let label = Bytes(address);
            self.line(format_args!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            ));
        }
        self.phases(plan);
    }

    /// Bands under the axis: which operations belong to which part of the step.
    fn phases(&mut self, plan: &Plan) {
        let phase_at = |position: usize| plan.graph().nodes[plan.program.order[position]].phase;
        let mut from = 0;
        for position in 1..=plan.program.order.len() {
            if position < plan.program.order.len() && phase_at(position) == phase_at(from) {
                continue;
            }
            let phase: Phase = phase_at(from);
            let shade = match phase {
                Phase::Forward => "#e8e8e8",
                Phase::Backward => "#c8c8c8",
                Phase::Update => "#888888",
            };
            let (x, w) = (self.x(from), self.x(position) - self.x(from));
            let y = HEIGHT - BOTTOM + 6.0;
            let name = phase.name();
            self.line(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{w:.1}\" height=\"14\" fill=\"{shade}\"><title>{name}</title></rect>"
            ));
            if w > 60.0 {
                let middle = x + w / 2.0;
                self.line(format_args!(
                    "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#000\">{name}</text>",
                    y + 11.0
                ));
            }
            from = position;
        }
        let (x, y) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0);
        self.line(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#444\">operations in their order</text>"
        ));
    }

    fn storage(&mut self, plan: &Plan, index: usize, storage: &Storage) {
        let offset = plan.layout.regions[index].offset;
        let address = self.base(plan, index) + offset;
        let (first, last) =
            if storage.persistent { (0, self.end) } else { (storage.first, storage.last + 1) };
        // Where another class of value takes over, the colour changes.
        let mut from = first;
        let changes = storage.tenants.iter().skip(1).map(|(at, _)| *at).chain([last]);
        for until in changes {
            let (x, w) = (self.x(from), self.x(until) - self.x(from));
            let (y, h) = (self.y(address + storage.bytes), self.y(address) - self.y(address + storage.bytes));
            if w > 0.0 {
                let class = storage.class_at(from);
                let (fill, pen) = colours(class);
                let (name, bytes) = (escape(&storage.name), Bytes(storage.bytes));
                self.line(format_args!(
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" fill=\"{fill}\" stroke=\"#fff\" \
                     stroke-width=\".5\"><title>{name}: {bytes}, {class}, operations {from} to {}, offset {offset}</title></rect>",
                    until - 1
                ));
                if h > 13.0 && w > 7.0 * name.len() as f64 {
                    let (tx, ty) = (x + 4.0, y + h / 2.0 + 4.0);
                    self.line(format_args!(
                        "<text x=\"{tx:.1}\" y=\"{ty:.1}\" font-size=\"11\" fill=\"{pen}\" pointer-events=\"none\">{name}</text>"
                    ));
                }
            }
            from = until;
        }
    }

    /// Bytes alive at each operation, and the fullest one.
    fn live_line(&mut self, plan: &Plan) {
        let live = |position: usize| -> u64 {
            plan.program.storages.iter().filter(|s| s.alive_at(position)).map(|s| s.bytes).sum()
        };
        let mut path = String::new();
        for position in 0..plan.program.order.len() {
            let (x0, x1, y) = (self.x(position), self.x(position + 1), self.y(live(position)));
            let letter = if position == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x0:.1} {y:.1}H{x1:.1}");
        }
        self.line(format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.5\"/>"));
        let peak = plan.peak.position;
        let (x, y) = ((self.x(peak) + self.x(peak + 1)) / 2.0, self.y(live(peak)));
        self.line(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#000\"/>"));
        let (anchor, tx) = if x > WIDTH / 2.0 { ("end", x - 8.0) } else { ("start", x + 8.0) };
        let text = format!("peak {}, lower bound {}", Bytes(live(peak)), Bytes(plan.lower_bound_bytes()));
        self.line(format_args!(
            "<text x=\"{tx:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#000\">{text}</text>",
            y - 7.0
        ));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
