//! What people read of a plan: the estimate, the list of tensors, the picture. No adapter is needed.

use wgrad::Bytes;
use wgrad::graph::Class;
use wgrad::limits::Limits;
use wgrad::models::Model;
use wgrad::plan::{Plan, PlanOptions};
use wgrad::report::{Estimate, picture, tensors};

fn plan() -> Plan {
    let step = Model::named("mlp", 0).unwrap().train_step(128).unwrap();
    step.plan(&PlanOptions::default(), &Limits::default()).unwrap()
}

#[test]
fn the_estimate_shows_every_figure_of_the_plan() {
    let plan = plan();
    let text = Estimate::of(&plan).to_string();
    let figure = |name: &str, bytes: u64| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no line for {name} in\n{text}"));
        assert!(line.contains(&Bytes(bytes).to_string()), "{line}: not {}", Bytes(bytes));
    };
    for (class, bytes) in plan.class_bytes() {
        figure(class.name(), bytes);
    }
    figure("naive", plan.naive_bytes());
    figure("planned", plan.peak_bytes());
    figure("lower bound", plan.lower_bound_bytes());
    figure("total", plan.footprint().total());
    assert!(text.contains(&plan.peak.at));
    assert!(text.lines().all(|line| line.len() <= 110 && line.trim_end() == line), "{text}");
}

#[test]
fn tensors_that_are_alive_together_never_overlap() {
    let plan = plan();
    let all = tensors(&plan);
    assert!(all.len() > 30);
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            let together = a.first <= b.last && b.first <= a.last;
            let apart = a.region.arena != b.region.arena
                || a.region.offset + a.bytes <= b.region.offset
                || b.region.offset + b.bytes <= a.region.offset;
            assert!(apart || !together, "{} and {} overlap", a.name, b.name);
        }
    }
    let alive = |position: usize| -> u64 {
        all.iter().filter(|t| t.first <= position && position <= t.last).map(|t| t.bytes).sum()
    };
    let fullest = (0..plan.program.order.len()).map(alive).max();
    assert_eq!(fullest, Some(plan.lower_bound_bytes()));
    let persistent = all.iter().filter(|t| t.class.is_persistent());
    assert_eq!(persistent.map(|t| t.bytes).sum::<u64>(), plan.layout.persistent_bytes());
}

#[test]
fn classes_at_the_peak_add_up_to_the_lower_bound() {
    let plan = plan();
    let sum: u64 = plan.class_bytes().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(sum, plan.lower_bound_bytes());
    assert_eq!(plan.peak_bytes(), plan.lower_bound_bytes());
    let of = |class| plan.class_bytes().iter().find(|(c, _)| *c == class).unwrap().1;
    assert_eq!(of(Class::Optimizer), 2 * of(Class::Parameter));
}

#[test]
fn the_picture_is_the_same_text_every_time_and_has_every_storage() {
    let (one, two) = (picture(&plan(), "a < b & c"), picture(&plan(), "a < b & c"));
    assert_eq!(one, two);
    assert!(one.starts_with("<svg ") && one.ends_with("</svg>\n"));
    assert!(one.contains("a &lt; b &amp; c"));
    assert!(!one.contains("http") || one.matches("http").count() == one.matches("http://www.w3.org").count());
    for storage in &plan().program.storages {
        assert!(one.contains(&format!("<title>{}: ", storage.name)), "{} is missing", storage.name);
    }
    assert_eq!(one.matches("<title>").count(), one.matches("</title>").count());
}
