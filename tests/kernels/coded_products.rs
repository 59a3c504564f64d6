//! Products with frozen weights of 4 and 8 bits: they give the bits of products of decoded copies, which are those of the host, and
//! what the twin computes.

use wgrad::compile::Forward;
use wgrad::dtype::FrozenStorage;
use wgrad::exec::{ProgramId, Session};
use wgrad::graph::{Init, Param, ParamGroup, Params};
use wgrad::reference::Twin;

use super::unchecked;
use crate::support::close::{Near, assert_close, assert_same_bits};
use crate::support::compare::kernels;
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

#[test]
fn products_of_coded_weights_equal_products_of_decoded_copies() {
    unchecked(|device, limits| {
        for storage in CODED {
            let params = Params::new(0);
            let mut list: Vec<Param> = Vec::new();
            for (i, [_, n, k]) in SIZES.into_iter().enumerate() {
                let data = weights(i as u64, n * k);
                list.push(params.add(&format!("w{i}"), [n, k], Init::Data(data.into())));
            }
            let group = ParamGroup { frozen: true, storage: Some(storage), ..ParamGroup::default() };
            params.set_group("*", group).expect("there are some");
            let forward = Forward::trace(&params, "sum", |trace| {
                let mut sum = trace.input("zero", [1]).sum(&[]);
                for (i, [m, n, k]) in SIZES.into_iter().enumerate() {
                    let w = trace.param(&list[i]);
                    // As a layer reads it, and as its gradient does.
                    let x = trace.input(&format!("x{i}"), [2, m, k]);
                    let y = x.matmul_transposed(&w, false, true);
                    let dx = trace.input(&format!("dy{i}"), [m, n]).matmul(&w);
                    trace.output(&format!("y{i}"), &y);
                    trace.output(&format!("dx{i}"), &dx);
                    sum = sum.add(&y.sum(&[]));
                }
                sum
            });
            let forward = forward.expect("valid");
            let plans =
                [forward.plan_unfused(limits), forward.plan(limits)].map(|plan| plan.expect("planned"));
            let decoded = format!("decode_{}", storage.name());
            let counts = plans.each_ref().map(|plan| {
                let names = kernels(plan);
                let reads = |name: &&String| name.starts_with("matmul") && name.contains(storage.name());
                (names.iter().filter(|name| **name == decoded).count(), names.iter().filter(reads).count())
            });
            assert_eq!(counts, [(2 * SIZES.len(), 0), (0, 2 * SIZES.len())], "{}", limits.name);
            let run = |plan| {
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
                let mut all = Vec::new();
                for (i, [_, n, k]) in SIZES.into_iter().enumerate() {
                    let own = session.parameter(&format!("w{i}")).expect("there");
                    let held = twin.parameter(&format!("w{i}")).expect("there");
                    let wide: Vec<f64> = own.iter().map(|x| f64::from(*x)).collect();
                    assert_eq!(wide, held, "{storage:?} [{n}, {k}]");
                    for name in ["y", "dx"] {
                        let what = format!("{name}{i}");
                        let found: Vec<f32> = session.output(ProgramId(0), &what).expect("an output");
                        let near = Near { rel: 1e-5, abs: 3e-4 };
                        assert_close(&what, &found, twin.output(&what).expect("declared"), near);
                        all.push((what, found));
                    }
                }
                all
            };
            let [apart, read] = plans.each_ref().map(run);
            for ((what, apart), (_, read)) in apart.iter().zip(&read) {
                assert_same_bits(&format!("{}: {storage:?} {what}", limits.name), apart, read);
            }
        }
    });
}
