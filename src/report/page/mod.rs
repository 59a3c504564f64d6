//! Renders plans as one interactive HTML page: pictures, and a table of every tensor. The page needs no
//! network; a browser opens the file.

use std::collections::BTreeMap;

use super::palette::{AGAIN, look};
use super::picture::Panel;
use super::scene::{Band, Block, Scene};
use crate::graph::Class;
use crate::json::Json;

const SCRIPTS: [&str; 3] = [include_str!("data.js"), include_str!("draw.js"), include_str!("main.js")];

/// Returns an HTML page of some plans; the last one is shown first. The page computes every number from the
/// rectangles of the tensors, which makes it an independent check of the plan.
///
/// The tabs are: address over time; bytes alive by class over time; a table of all tensors, sorted by bytes ×
/// lifetime in descending order. Hovering over a tensor shows its details. The page follows the reader's
/// light or dark theme.
pub fn page(panels: &[Panel<'_>], title: &str) -> String {
    fill(
        include_str!("page.html"),
        &[
            ("title", &escape(title)),
            ("style", include_str!("page.css").trim_end()),
            ("pictures", include_str!("pictures.html").trim_end()),
            ("data", &page_data(panels).to_string()),
            ("script", SCRIPTS.concat().trim_end()),
        ],
    )
}

/// Returns what the scripts of [`page`] draw: for pages of one's own, which call `renew` with it.
pub fn page_data(panels: &[Panel<'_>]) -> Json {
    let mut words = Words::default();
    let plans: Vec<Json> =
        panels.iter().map(|panel| plan(panel.name, &Scene::of(panel.plan), &mut words)).collect();
    let classes = Class::ALL.map(|class| {
        let look = look(class);
        Json::object(
            [("name", class.name()), ("fill", look.fill), ("pen", look.pen), ("pattern", look.pattern)]
                .map(|(key, text)| (key, Json::from(text))),
        )
    });
    Json::object([
        ("classes", Json::list(classes)),
        ("again", AGAIN.into()),
        ("words", Json::list(words.list)),
        ("plans", Json::List(plans)),
    ])
}

/// Substitutes texts for the placeholders of a template in one pass: substituted text is not scanned for
/// placeholders.
fn fill(template: &str, texts: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut parts = template.split("{{");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        out.push_str(texts.iter().find(|(other, _)| *other == name).map_or("", |(_, text)| text));
        out.push_str(rest);
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A string table: each distinct string is stored once and referenced by its number.
#[derive(Default)]
struct Words {
    list: Vec<String>,
    number: BTreeMap<String, usize>,
}

impl Words {
    fn number(&mut self, word: &str) -> Json {
        let next = self.list.len();
        let number = *self.number.entry(word.to_owned()).or_insert(next);
        if number == next {
            self.list.push(word.to_owned());
        }
        number.into()
    }
}

fn plan(name: &str, scene: &Scene<'_>, words: &mut Words) -> Json {
    let arenas: Vec<(String, u64, u64)> = {
        let mut base = 0;
        let of = |(arena, bytes): (crate::compile::Arena, u64)| {
            base += bytes;
            (arena.to_string(), bytes, base - bytes)
        };
        scene.plan.layout.arenas().map(of).collect()
    };
    let blocks: Vec<Json> = scene.blocks.iter().map(|b| block(b, &arenas, words)).collect();
    let program = &scene.plan.program;
    let operations: Vec<Json> = program
        .order
        .iter()
        .map(|&n| {
            let node = &program.graph.nodes[n];
            Json::List([node.op.name(), &node.layer, node.phase.name()].map(|w| words.number(w)).to_vec())
        })
        .collect();
    let mut bands = |list: &[Band]| {
        let one = |b: &Band| Json::List(vec![words.number(&b.name), b.from.into(), b.until.into()]);
        Json::List(list.iter().map(one).collect())
    };
    let (phases, layers) = (bands(&scene.phases), bands(&scene.layers));
    let arena = |(name, bytes, base): &(String, u64, u64)| {
        Json::object([("name", name.as_str().into()), ("bytes", (*bytes).into()), ("base", (*base).into())])
    };
    Json::object([
        ("name", name.into()),
        ("end", scene.end.into()),
        ("arenas", Json::List(arenas.iter().map(arena).collect())),
        ("phases", phases),
        ("layers", layers),
        ("operations", Json::List(operations)),
        ("blocks", Json::List(blocks)),
    ])
}

/// Returns a block as data. The layer's path is stripped from the start of the tensor's name.
fn block(block: &Block, arenas: &[(String, u64, u64)], words: &mut Words) -> Json {
    let t = &block.tensor;
    let rest = t.name.strip_prefix(&t.layer).filter(|rest| !t.layer.is_empty() && rest.starts_with('.'));
    let arena = t.region.arena.to_string();
    Json::List(vec![
        rest.unwrap_or(&t.name).into(),
        words.number(&t.shape.to_string()),
        words.number(t.dtype.name()),
        Class::ALL.iter().position(|class| *class == t.class).unwrap_or(0).into(),
        words.number(&t.layer),
        words.number(t.op),
        t.bytes.into(),
        block.from.into(),
        block.until.into(),
        block.address.into(),
        arenas.iter().position(|(name, ..)| *name == arena).unwrap_or(0).into(),
        u64::from(t.again).into(),
    ])
}
