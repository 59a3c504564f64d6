//! Products with frozen weights of 4 and 8 bits: they give the bits of products of decoded copies, which are those of the host, and
//! what the twin computes.

use wgrad::compile::{Forward, Plan};
use wgrad::device::Device;
use wgrad::dtype::{FrozenStorage, Precision, WeightStorage};
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Param, ParamGroup, Params};
use wgrad::kernels::cooperative::BLOCKS;
use wgrad::limits::Products;
use wgrad::reference::Twin;

use super::unchecked;
use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::compare::kernels;
use crate::support::cooperative;
use crate::support::noise;

const CODED: [FrozenStorage; 3] = [FrozenStorage::Int8, FrozenStorage::Int4, FrozenStorage::Nf4];

/// Rows of the first operand, and rows and columns of the weight, of 1,024 elements or more: rows in vec4 and not, blocks that
/// end within a row, and a last block that is not full.
const SIZES: [[usize; 3]; 7] =
    [[1, 64, 16], [3, 37, 29], [9, 130, 36], [40, 48, 132], [33, 33, 65], [70, 256, 64], [130, 128, 128]];

/// Noise whose magnitude changes from group to group.
fn weights(seed: u64, n: usize) -> Vec<f32> {
    let size = |i: usize| [1.0, 0.03, 20.0][i / 64 % 3];
    noise(seed, n, -1.0, 1.0).into_iter().enumerate().map(|(i, x)| x * size(i)).collect()
}

/// Products with a weight of each size, as a layer reads it (`y`) and as its gradient does (`dx`); the weights are frozen with
/// this storage, or as they are.
fn products(storage: Option<FrozenStorage>, weights: impl Fn(usize) -> Vec<f32>) -> Forward {
    let params = Params::new(0);
    let mut list: Vec<Param> = Vec::new();
    for (i, [_, n, k]) in SIZES.into_iter().enumerate() {
        list.push(params.add(&format!("w{i}"), [n, k], Init::Data(weights(i).into())));
    }
    let group = ParamGroup { frozen: true, storage, ..ParamGroup::default() };
    params.set_group("*", group).expect("there are some");
    let forward = Forward::trace(&params, "sum", |trace| {
        let mut sum = trace.input("zero", [1]).sum(&[]);
        for (i, [m, n, k]) in SIZES.into_iter().enumerate() {
            let w = trace.param(&list[i]);
            let x = trace.input(&format!("x{i}"), [2, m, k]);
            let y = x.matmul_transposed(&w, false, true);
            let dx = trace.input(&format!("dy{i}"), [m, n]).matmul(&w);
            trace.output(&format!("y{i}"), &y);
            trace.output(&format!("dx{i}"), &dx);
            sum = sum.add(&y.sum(&[]));
        }
        sum
    });
    forward.expect("valid")
}

/// Elements of a weight before they are stored.
fn initial(i: usize) -> Vec<f32> {
    let [_, n, k] = SIZES[i];
    weights(i as u64, n * k)
}

/// What a plan computes, by name, near the twin, and the weights as they are stored.
struct Run {
    results: Vec<(String, Vec<f32>)>,
    weights: Vec<Vec<f32>>,
}

fn run(device: &Device, plan: &Plan, near: Near) -> Run {
    let mut session = Session::new(device, plan).expect("it opens");
    let mut twin = Twin::new(plan.graph());
    session.feed("zero", &[0.0f32]).expect("valid");
    twin.set_f32("zero", &[0.0]).expect("valid");
    for (i, [m, n, k]) in SIZES.into_iter().enumerate() {
        let inputs = [("x", 2 * m * k), ("dy", m * n)];
        for (seed, (name, count)) in inputs.into_iter().enumerate() {
            let data = noise((100 + 2 * i + seed) as u64, count, -1.0, 1.0);
            session.feed(&format!("{name}{i}"), &data).expect("valid");
            twin.set_f32(&format!("{name}{i}"), &data).expect("valid");
        }
    }
    session.step().expect("it runs");
    twin.run().expect("the twin runs");
    let (mut results, mut weights) = (Vec::new(), Vec::new());
    for (i, size) in SIZES.into_iter().enumerate() {
        let own = session.parameter(&format!("w{i}")).expect("there");
        let held = twin.parameter(&format!("w{i}")).expect("there");
        let wide: Vec<f64> = own.iter().map(|x| f64::from(*x)).collect();
        assert_eq!(wide, held, "{size:?}");
        for name in ["y", "dx"] {
            let what = format!("{name}{i}");
            let found: Vec<f32> = session.output(ProgramId(0), &what).expect("an output");
            assert_close(&what, &found, twin.output(&what).expect("declared"), near);
            results.push((what, found));
        }
        weights.push(own);
    }
    Run { results, weights }
}

/// Checks that two plans give the same bits.
fn same(what: &str, a: &Run, b: &Run) {
    for ((name, a), (_, b)) in a.results.iter().zip(&b.results) {
        assert_same_bits(&format!("{what}: {name}"), a, b);
    }
}

/// Returns the number of products that read codes.
fn reading(plan: &Plan, storage: FrozenStorage) -> usize {
    let reads = |name: &&String| name.starts_with("matmul") && name.contains(storage.name());
    kernels(plan).iter().filter(reads).count()
}

#[test]
fn products_of_coded_weights_equal_products_of_decoded_copies() {
    unchecked(|device, limits| {
        for storage in CODED {
            let forward = products(Some(storage), initial);
            let plans =
                [forward.plan_unfused(limits), forward.plan(limits)].map(|plan| plan.expect("planned"));
            let decoded = format!("decode_{}", storage.name());
            let counts = plans.each_ref().map(|plan| {
                let copies = kernels(plan).iter().filter(|name| **name == decoded).count();
                (copies, reading(plan, storage))
            });
            assert_eq!(counts, [(2 * SIZES.len(), 0), (0, 2 * SIZES.len())], "{}", limits.name);
            let near = Near { rel: 1e-5, abs: 3e-4 };
            let [apart, read] = plans.each_ref().map(|plan| run(device, plan, near));
            same(&format!("{}: {storage:?}", limits.name), &apart, &read);
        }
    });
}

/// Cooperative matrices round weights of 32 bits as they round decoded ones, to 11 bits: of weights up to 20.
#[test]
fn cooperative_products_of_coded_weights_equal_those_of_decoded_ones() {
    let near = Near { rel: 1e-2, abs: 0.1 };
    for (device, limits) in cooperative() {
        for (storage, block) in CODED.into_iter().zip(&BLOCKS) {
            let limits = limits.choosing(|kernels| kernels.products = Products::all(block.name));
            let plan = |forward: &Forward| {
                forward.plan_in(Precision::F16, WeightStorage::F32, &limits).expect("planned")
            };
            let coded = plan(&products(Some(storage), initial));
            let by_matrices = |name: &&String| name.starts_with("matmul_cooperative");
            let count = kernels(&coded).iter().filter(by_matrices).count();
            // All but those of less than a matrix's rows.
            let side = limits.kernels.cooperative.map_or(0, |matrices| matrices.side as usize);
            let most = 2 * SIZES.iter().filter(|[m, ..]| *m >= side).count();
            assert!(count >= most && reading(&coded, storage) == 2 * SIZES.len(), "{:?}", kernels(&coded));
            let read = run(device, &coded, near);
            let wide = plan(&products(None, |i| read.weights[i].clone()));
            assert_eq!(kernels(&wide).iter().filter(by_matrices).count(), count);
            same(
                &format!("{}: {storage:?} by {}", limits.name, block.name),
                &run(device, &wide, near),
                &read,
            );
        }
    }
}
