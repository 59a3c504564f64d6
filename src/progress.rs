//! Progress of long work: planning under a budget, opening a session, loading and saving report to a watcher.
//! Nothing is printed here; [`train::Meter`](crate::train::Meter) draws a progress line.
//!
//! ```
//! use wgrad::progress::{task, watch};
//! watch(|progress| assert_eq!(progress.what, "pages"), || {
//!     let pages = task("pages", 3);
//!     for page in 1..=3 {
//!         pages.done(page);
//!     }
//! });
//! ```

use std::cell::RefCell;

/// Progress of the outermost task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Name of the task.
    pub what: &'static str,
    /// Completed units.
    pub done: u64,
    /// Total units; `None` if unknown.
    pub total: Option<u64>,
    /// Completed fraction in [0, 1], including nested tasks of the current unit.
    pub share: Option<f64>,
    /// Whether the task has ended. Nothing more is reported about it.
    pub over: bool,
}

type Tell = Box<dyn FnMut(&Progress)>;

struct Level {
    what: &'static str,
    done: u64,
    total: Option<u64>,
}

#[derive(Default)]
struct Stack {
    tell: Option<Tell>,
    levels: Vec<Level>,
    /// The largest fraction reported for the outermost task. It keeps reports from decreasing, because a unit
    /// may contain several tasks that each start at 0.
    most: f64,
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::default();
}

/// Runs `work` and calls `tell` on the progress of its tasks on this thread: at each unit of work, which may
/// be often.
pub fn watch<R>(tell: impl FnMut(&Progress) + 'static, work: impl FnOnce() -> R) -> R {
    /// Restores the previous stack, even after a panic.
    struct Before(Stack);
    impl Drop for Before {
        fn drop(&mut self) {
            STACK.set(std::mem::take(&mut self.0));
        }
    }
    let stack = Stack { tell: Some(Box::new(tell)), ..Stack::default() };
    let _before = Before(STACK.replace(stack));
    work()
}

/// Starts a task of `total` units; it ends when the returned value is dropped. A task that starts meanwhile
/// is part of the current unit.
pub fn task(what: &'static str, total: impl Into<Option<u64>>) -> Task {
    STACK.with_borrow_mut(|stack| {
        if stack.levels.is_empty() {
            stack.most = 0.0;
        }
        stack.levels.push(Level { what, done: 0, total: total.into() });
    });
    tell(false);
    Task { level: STACK.with_borrow(|stack| stack.levels.len()), _here: std::marker::PhantomData }
}

/// A running task. See [`task`].
#[must_use = "a task ends when it is dropped"]
pub struct Task {
    /// Nesting level, 1 for the outermost task.
    level: usize,
    /// Makes the task `!Send`: it belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Task {
    /// Reports the number of completed units.
    pub fn done(&self, units: u64) {
        self.change(|level| {
            level.done = units;
            // The work may exceed the expected total.
            level.total = level.total.map(|total| total.max(units));
        });
    }

    /// Sets the total units, if they were unknown at the start.
    pub fn expect(&self, total: u64) {
        self.change(|level| level.total = Some(total));
    }

    fn change(&self, change: impl FnOnce(&mut Level)) {
        STACK.with_borrow_mut(|stack| stack.levels.get_mut(self.level - 1).map(change));
        tell(false);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        tell(self.level == 1);
        STACK.with_borrow_mut(|stack| stack.levels.truncate(self.level - 1));
    }
}

fn tell(over: bool) {
    // The watcher is taken out during its call: it may start tasks itself.
    let taken = STACK.with_borrow_mut(|stack| {
        // Tasks of the watcher itself are not reported.
        let (what, done, total) = stack.levels.first().map(|l| (l.what, l.done, l.total))?;
        let told = stack.tell.take()?;
        let share = |inner: Option<f64>, level: &Level| {
            let done = level.done as f64 + inner.unwrap_or(0.0);
            level.total.map(|total| (done / total.max(1) as f64).clamp(0.0, 1.0))
        };
        let share = stack.levels.iter().rev().fold(None, share).map(|share| share.max(stack.most));
        stack.most = share.unwrap_or(0.0);
        let progress = Progress { what, done, total, share, over };
        Some((told, progress))
    });
    let Some((mut told, progress)) = taken else { return };
    told(&progress);
    STACK.with_borrow_mut(|stack| stack.tell = Some(told));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn nested_tasks_are_parts_of_a_unit_of_the_outer_task() {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&heard);
        watch(
            move |p| list.borrow_mut().push((p.what, p.done, p.share, p.over)),
            || {
                let outer = task("levers", 4);
                outer.done(1);
                let inner = task("search", 2);
                inner.done(1);
                drop(inner);
                drop(task("again from its beginning", 2));
                outer.done(2);
            },
        );
        let levers = |done, share, over| ("levers", done, Some(share), over);
        let expected = [
            levers(0, 0.0, false),
            levers(1, 0.25, false),
            levers(1, 0.25, false),
            levers(1, 0.375, false),
            levers(1, 0.375, false),
            levers(1, 0.375, false),
            levers(1, 0.375, false),
            levers(2, 0.5, false),
            levers(2, 0.5, true),
        ];
        assert_eq!(*heard.borrow(), expected);
        // The watcher is gone.
        task("later", None).done(1);
        assert_eq!(heard.borrow().len(), expected.len());
    }

    #[test]
    fn total_may_be_unknown_and_watchers_may_start_tasks() {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&heard);
        watch(
            move |p| {
                task("writing it down", 1).done(1);
                list.borrow_mut().push(p.share);
            },
            || {
                let batch = task("batch", None);
                batch.done(7);
                batch.expect(14);
            },
        );
        assert_eq!(*heard.borrow(), [None, None, Some(0.5), Some(0.5)]);
    }
}
