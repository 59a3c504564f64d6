//! Long operations report their progress.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::{devices, on_each};
use wgrad::Bytes;
use wgrad::compile::{self, PlanOptions, Recompute};
use wgrad::exec::SaveOptions;
use wgrad::exec::Session;
use wgrad::limits::Limits;
use wgrad::models::Model;
use wgrad::progress::{Progress, watch};

/// Returns the names of the tasks that `work` reports, in order, after checking that each starts, advances
/// and ends.
fn tasks_of(work: impl FnOnce()) -> Vec<&'static str> {
    let heard: Rc<RefCell<Vec<Progress>>> = Rc::default();
    let list = Rc::clone(&heard);
    watch(move |progress| list.borrow_mut().push(*progress), work);
    let heard = heard.borrow();
    let mut names = Vec::new();
    for task in heard.split_inclusive(|progress| progress.over) {
        let last = task.last().unwrap();
        assert!(last.over, "{last:?} never ends");
        assert!(task.iter().all(|p| p.what == last.what), "{task:?}");
        assert!(task.iter().filter_map(|p| p.share).is_sorted(), "{task:?} goes back");
        assert!(task.windows(2).all(|p| p[0].done <= p[1].done), "{task:?} goes back");
        assert!(last.total.is_none_or(|total| last.done <= total), "{last:?}");
        names.push(last.what);
    }
    names
}

#[test]
fn planning_reports_progress() {
    let (limits, budget) = (Limits::named("nvidia").unwrap(), Bytes::mib(400));
    let model = Model::named("resnet18", 0).unwrap();
    let step = |batch: usize| model.train_step(batch);
    let options = PlanOptions::default();
    let auto = PlanOptions { recompute: Recompute::Auto, budget: Some(budget), ..options };
    let names = tasks_of(|| drop(step(32).unwrap().plan(&auto, &limits).unwrap()));
    assert_eq!(names, ["what to compute again"]);
    let names = tasks_of(|| drop(compile::levers(step, 32, &options, budget, &limits).unwrap()));
    assert_eq!(names, ["ways to save memory"]);
    let names = tasks_of(|| drop(compile::fit(step, 32, &options, budget, &limits).unwrap()));
    assert_eq!(names, ["fitting"]);
    let names = tasks_of(|| assert!(compile::max_batch(step, &options, budget, &limits).unwrap() > 8));
    assert_eq!(names, ["largest batch: plans"]);
}

#[test]
fn opening_saving_and_loading_report_progress() {
    let file = std::env::temp_dir().join(format!("wgrad-progress-{}.safetensors", std::process::id()));
    on_each(devices(), |device| {
        let step = Model::named("digits", 0).unwrap().train_step(4).unwrap();
        let plan = step.plan(&PlanOptions::default(), device.limits()).unwrap();
        let mut session = None;
        let names = tasks_of(|| session = Some(Session::new(device, &plan).unwrap()));
        assert_eq!(names.last(), Some(&"parameters"), "{names:?}");
        let mut session = session.unwrap();
        assert_eq!(
            tasks_of(|| session.save_with(&file, &SaveOptions::training_state()).unwrap()),
            ["saving"]
        );
        assert_eq!(tasks_of(|| session.load(&file).unwrap()), ["loading"]);
    });
    std::fs::remove_file(&file).unwrap();
}
