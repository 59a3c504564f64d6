//! How far long work is: planning under a budget, opening a session, loading and saving tell whoever watches. Nothing is
//! printed here; [`train::Meter`](crate::train::Meter) draws a line.
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

/// Where the outermost task stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What is being done.
    pub what: &'static str,
    /// Units of it that are done.
    pub done: u64,
    /// Units in all; `None` where nobody knows.
    pub total: Option<u64>,
    /// Share that is done, in [0, 1], with tasks inside of the one under way.
    pub share: Option<f64>,
    /// The task has ended: nothing more is told of it.
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
    /// The largest share told of the outermost task: a unit may have several tasks inside, each of which begins at 0.
    most: f64,
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::default();
}

/// Runs `work` and calls `tell` as its tasks go on, those of this thread: at each unit of work, which may be often.
pub fn watch<R>(tell: impl FnMut(&Progress) + 'static, work: impl FnOnce() -> R) -> R {
    /// Brings back what was there before, even after a panic.
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

/// Work of `total` units that begins now and ends when the returned value is dropped. What begins meanwhile is a part of
/// its next unit.
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

/// A part of long work. See [`task`].
#[must_use = "a task ends when it is dropped"]
pub struct Task {
    /// How many tasks there were with it.
    level: usize,
    /// It belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Task {
    /// So many units are done.
    pub fn done(&self, units: u64) {
        self.change(|level| {
            level.done = units;
            // More than expected.
            level.total = level.total.map(|total| total.max(units));
        });
    }

    /// There are so many units: for a total that was not known at first.
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
    // The watcher is taken out while it is called: it may have tasks of its own.
    let taken = STACK.with_borrow_mut(|stack| {
        // What the watcher does itself is not counted.
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
        // Nobody watches any more.
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
