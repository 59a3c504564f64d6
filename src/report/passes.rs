//! The table of the compiler's passes.

use super::table::Table;
use crate::compile::PassEffect;
use crate::json::Json;
use crate::units::Bytes;

/// Returns a table of the passes: when each runs, and by how much it changes bytes and dispatches.
pub fn passes(effects: &[PassEffect]) -> String {
    let columns = ["runs with", "results"].map(|name| (name, true));
    let numbers = ["bytes", "less", "dispatches", "fewer"].map(|name| (name, false));
    let mut table = Table::new(&[&[("pass", true)], &columns[..], &numbers[..]].concat());
    let mut before: Option<&PassEffect> = None;
    for effect in effects {
        let nothing = || "–".to_owned();
        let change = |now: Option<u64>, then: Option<u64>, text: fn(u64) -> String| match (then, now) {
            (Some(then), Some(now)) if now < then => text(then - now),
            (Some(then), Some(now)) if now > then => format!("+{}", text(now - then)),
            _ => nothing(),
        };
        let size = |bytes: u64| Bytes(bytes).to_string();
        table.row([
            effect.name.to_owned(),
            effect.when.to_owned(),
            if effect.exact { "same bits" } else { "rounded" }.to_owned(),
            effect.bytes.filter(|_| effect.ran).map_or_else(nothing, size),
            change(effect.bytes, before.and_then(|last| last.bytes), size),
            effect.dispatches.filter(|_| effect.ran).map_or_else(nothing, |count| count.to_string()),
            change(effect.dispatches, before.and_then(|last| last.dispatches), |count| count.to_string()),
        ]);
        before = Some(effect);
    }
    table.lines()
}

/// Returns the effects of the passes as JSON.
pub fn passes_json(effects: &[PassEffect]) -> Json {
    let number = |number: Option<u64>| number.map_or(Json::Null, Json::from);
    let one = |effect: &PassEffect| {
        Json::object([
            ("name", effect.name.into()),
            ("when", effect.when.into()),
            ("exact", Json::Bool(effect.exact)),
            ("ran", Json::Bool(effect.ran)),
            ("bytes", number(effect.bytes)),
            ("dispatches", number(effect.dispatches)),
        ])
    };
    Json::List(effects.iter().map(one).collect())
}
