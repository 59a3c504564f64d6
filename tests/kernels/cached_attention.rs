//! Attention over a cache of keys and values: random pages, sizes, windows, caps and element types against the twin; what it
//! stores;
//! and texts in pieces against texts as a whole.

use wgrad::compile::Forward;
use wgrad::device::Device;
use wgrad::dtype::DType;
use wgrad::exec::{Debug, ProgramId, Session};
use wgrad::graph::{Attention, Params, Rope};
use wgrad::limits::Limits;
use wgrad::reference::Twin;

use super::{everywhere, unchecked};
use crate::support::close::{EXACT, Near, assert_close, assert_within};
use crate::support::problems::Draws;
use crate::support::{each_case, noise};

/// New tokens of several texts, each with pages of a cache in use to another length.
#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    rows: usize,
    /// Pages of the caches, and tokens of each.
    pages: [usize; 2],
    /// The pages of each text.
    table: Vec<Vec<u32>>,
    heads: [usize; 2],
    size: usize,
    dtype: DType,
    options: Attention,
    used: Vec<u32>,
    seed: u64,
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let mut below = |limit: usize| draws.below(limit as u64) as usize;
        let kv_heads = 1 + below(3);
        let (batch, length, rows) = (1 + below(3), 1 + below(600), 1 + below(70));
        // Beyond the end as well: it counts as full.
        let used: Vec<u32> = (0..batch).map(|_| below(length + length / 8 + 1) as u32).collect();
        let page = [1, 5, 16, 64, length][below(5)];
        let of_text = length.div_ceil(page);
        let pages = batch * of_text + below(3);
        let mut free: Vec<u32> = (0..pages as u32).collect();
        let mut taken = || free.swap_remove(below(free.len()));
        let mut table: Vec<Vec<u32>> = (0..batch).map(|_| (0..of_text).map(|_| taken()).collect()).collect();
        let (shares, lacks) = (below(2) == 0, below(2) == 0);
        for b in 1..batch {
            // Pages to which neither text adds tokens.
            let whole = used[0].min(used[b]) as usize / page * usize::from(shares);
            let (first, own) = table.split_at_mut(b);
            own[0][..whole.min(of_text)].copy_from_slice(&first[0][..whole.min(of_text)]);
        }
        for (text, used) in table.iter_mut().zip(&used).filter(|_| lacks) {
            // There is none for some of the new tokens.
            text.iter_mut()
                .skip((*used as usize + rows / 2).div_ceil(page))
                .for_each(|of| *of = pages as u32);
        }
        let options = Attention {
            scale: (below(3) == 0).then_some(0.3),
            window: (below(2) == 0).then(|| 1 + below(200)),
            softcap: (below(3) == 0).then_some(1.5),
            ..Attention::causal()
        };
        let size: usize = [4, 12, 16, 64, 80, 128, 256][below(7)];
        // A group of codes is 64 elements of a head.
        let types = [DType::Uint8, DType::F32, DType::F16, DType::BF16];
        let types = &types[usize::from(!size.is_multiple_of(64))..];
        Self {
            batch,
            rows,
            pages: [pages, page],
            table,
            heads: [kv_heads * (1 + below(3)), kv_heads],
            size,
            dtype: types[below(types.len())],
            options,
            used,
            seed,
        }
    }

    fn forward(&self) -> Forward {
        let Self {
            batch,
            rows,
            pages: [pages, page],
            heads: [heads, kv_heads],
            size,
            dtype,
            ref options,
            ..
        } = *self;
        let params = Params::new(1);
        let caches = ["k", "v"].map(|name| params.add_cache(name, [pages, page, kv_heads, size], dtype));
        Forward::trace(&params, "o", |t| {
            let [q, k, v] = [("q", heads), ("new k", kv_heads), ("new v", kv_heads)]
                .map(|(name, heads)| t.input(name, [batch, rows, heads, size]));
            let used = t.ids("used", [batch], u32::MAX);
            let pages = t.ids("pages", [batch, self.table[0].len()], u32::MAX);
            let caches = caches.each_ref().map(|cache| t.param(cache));
            q.cached_attention(&k, &v, caches.each_ref(), &pages, &used, options)
        })
        .expect("valid")
    }

    /// The result, and both caches afterwards, on the device and by the twin.
    fn check(&self, device: &Device, limits: &Limits) {
        let Self { batch, rows, pages, heads: [heads, kv_heads], size, dtype, .. } = *self;
        let plan = self.forward().plan(limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        let mut twin = Twin::new(plan.graph());
        let inputs = [("q", heads), ("new k", kv_heads), ("new v", kv_heads)];
        for (i, (name, heads)) in inputs.into_iter().enumerate() {
            let data = noise(self.seed + i as u64, batch * rows * heads * size, -1.0, 1.0);
            session.feed(name, &data).expect(name);
            twin.set_f32(name, &data).expect(name);
        }
        for (i, name) in ["k", "v"].into_iter().enumerate() {
            let data = noise(self.seed + 7 + i as u64, pages[0] * pages[1] * kv_heads * size, -1.0, 1.0);
            session.set_parameter(name, &data).expect(name);
            twin.set_f32(name, &data).expect(name);
        }
        for (name, data) in [("used", &self.used), ("pages", &self.table.concat())] {
            session.feed(name, data).expect(name);
            twin.set_u32(name, data).expect(name);
        }
        session.run(ProgramId(0)).expect("it runs");
        twin.run().expect("it runs");
        let found: Vec<f32> = session.output(ProgramId(0), "o").expect("an output");
        let wanted = twin.output("o").expect("an output");
        let near = 1e-5 + 1e-6 * (size as f64).sqrt();
        assert_within(&format!("{self:?} ({})", limits.name), &found, wanted, |i| {
            near * (wanted[i].abs() + 1.0)
        });
        for name in ["k", "v"] {
            let id = plan.graph().ids().find(|(_, value)| value.name == name).expect("used").0;
            let stored = session.parameter(name).expect(name);
            let wanted = twin.value(id).expect("computed");
            // A number halfway between two levels may be stored as either: they are up to 2 / 255 apart.
            let near = match dtype {
                DType::F32 => Near { rel: 1e-7, abs: 0.0 },
                DType::Uint8 => Near { rel: 0.0, abs: 0.009 },
                _ => EXACT,
            };
            assert_close(&format!("{self:?}: {name}"), &stored, wanted, near);
            let others = stored.iter().zip(wanted).filter(|(a, b)| (f64::from(**a) - *b).abs() > 1e-6);
            assert!(others.count() * 10_000 <= stored.len(), "{self:?}: {name}");
        }
    }
}

#[test]
fn attention_over_a_cache_matches_the_twin() {
    each_case(0..24, false, |device, limits, &seed| Case::draw(seed).check(device, limits));
    everywhere(|device, limits| (24..28).for_each(|seed| Case::draw(seed).check(device, limits)));
}

/// One query of one head: on GPUs its keys are divided between workgroups, on software adapters those of very long texts.
#[test]
fn long_caches_are_read_in_parts() {
    unchecked(|device, limits| {
        let (batch, rows, dtype, seed) = (1, 1, DType::F16, 3);
        let (options, used) = (Attention::causal(), vec![39_990]);
        let (pages, table) = ([1, 40_000], vec![vec![0]]);
        let case = Case { batch, rows, pages, table, heads: [1, 1], size: 4, dtype, options, used, seed };
        let plan = case.forward().plan(limits).expect("it can be planned");
        let kernels = crate::support::compare::kernels(&plan);
        assert!(kernels.iter().any(|name| name == "cached_attention_join"), "{kernels:?}");
        case.check(device, limits);
    });
}

/// A text in pieces, by positions and a cache, is the text as a whole.
#[test]
fn texts_in_pieces_are_texts_as_a_whole() {
    const TOKENS: usize = 50;
    let (heads, size) = (2, 8);
    let pieces = [30, 1, 1, 18];
    unchecked(|device, limits| {
        let options = Attention { window: Some(20), ..Attention::causal() };
        let params = Params::new(1);
        let caches = ["k", "v"].map(|name| params.add_cache(name, [4, 16, heads, size], DType::F32));
        let data = noise(5, TOKENS * heads * size, -2.0, 2.0);
        let whole = Forward::trace(&params, "o", |t| {
            let x = t.input("x", [1, TOKENS, heads, size]);
            x.rotary(heads, 100.0).attention(&x.rotary(heads, 100.0), &x, &options)
        });
        let part = |rows: usize| {
            Forward::trace(&params, "o", |t| {
                let x = t.input("x", [1, rows, heads, size]);
                let (used, positions) = (t.ids("used", [1], 100), t.ids("positions", [1, rows], 100));
                let pages = t.ids("pages", [1, 4], 4);
                let rotated = x.rotary_at(&positions, heads, Rope::from(100.0));
                let caches = caches.each_ref().map(|cache| t.param(cache));
                rotated.cached_attention(&rotated, &x, caches.each_ref(), &pages, &used, &options)
            })
        };
        let forwards: Vec<_> = std::iter::once(whole).chain(pieces.map(part)).collect();
        let plans: Vec<_> =
            forwards.into_iter().map(|f| f.expect("valid").plan(limits).expect("planned")).collect();
        let mut session = Session::with_plans(device, &plans.iter().collect::<Vec<_>>(), Debug::default())
            .expect("it opens");
        session.feed_to(ProgramId(0), "x", &data).expect("x");
        session.run(ProgramId(0)).expect("it runs");
        let whole: Vec<f32> = session.output(ProgramId(0), "o").expect("an output");
        let mut start = 0;
        for (i, rows) in pieces.into_iter().enumerate() {
            let id = ProgramId(i + 1);
            let range = start * heads * size..(start + rows) * heads * size;
            session.feed_to(id, "x", &data[range.clone()]).expect("x");
            session.feed_to(id, "used", &[start as u32]).expect("length");
            session.feed_to(id, "pages", &[2, 0, 3, 1]).expect("pages");
            let positions: Vec<u32> = (start as u32..(start + rows) as u32).collect();
            session.feed_to(id, "positions", &positions).expect("positions");
            session.run(id).expect("it runs");
            let found: Vec<f32> = session.output(id, "o").expect("an output");
            let wanted: Vec<f64> = whole[range].iter().map(|&x| f64::from(x)).collect();
            assert_close(&format!("from {start}"), &found, &wanted, Near { rel: 1e-5, abs: 1e-5 });
            start += rows;
        }
    });
}

/// NaN reaches the texts that have it, and no others.
#[test]
fn nan_in_a_cache_stays_in_its_text() {
    let (heads, size, rows) = (1, 8, 2);
    let options = Attention::causal();
    let case = Case {
        batch: 2,
        rows,
        pages: [2, 70],
        table: vec![vec![0], vec![1]],
        heads: [heads, heads],
        size,
        dtype: DType::F16,
        options,
        used: vec![65, 65],
        seed: 9,
    };
    unchecked(|device, limits| {
        let plan = case.forward().plan(limits).expect("it can be planned");
        let mut session = Session::new(device, &plan).expect("it opens");
        for name in ["q", "new k", "new v"] {
            session.feed(name, &noise(4, 2 * rows * size, -1.0, 1.0)).expect(name);
        }
        let mut keys = noise(5, 2 * 70 * size, -1.0, 1.0);
        // Of the first text a key that is in use; of the second one that is not.
        keys[64 * size] = f32::NAN;
        keys[(70 + 68) * size] = f32::NAN;
        session.set_parameter("k", &keys).expect("keys");
        session.feed("used", &case.used).expect("lengths");
        session.feed("pages", &[0, 1]).expect("pages");
        session.run(ProgramId(0)).expect("it runs");
        let found: Vec<f32> = session.output(ProgramId(0), "o").expect("an output");
        let (first, second) = found.split_at(rows * size);
        assert!(first.iter().all(|x| x.is_nan()) && second.iter().all(|x| x.is_finite()), "{found:?}");
    });
}
