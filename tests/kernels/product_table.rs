//! Every row of the table of products on every adapter that can run it, whatever its class prefers: all
//! layouts, sizes around the tiles, batches, 16-bit operands, and epilogues.

use wgrad::dtype::DType;
use wgrad::graph::{Tensor, Trace};
use wgrad::kernels::matmul::{VARIANTS, Variant};
use wgrad::limits::{Limits, Products};

use super::products::{TRANSPOSES, product, swapped};
use crate::support::close::Near;
use crate::support::compare::{compare, compare_fused, kernels};
use crate::support::{devices, noise, on_each};

/// Runs `body` with limits that name a row, for each adapter that can run the row.
fn each_row(body: impl Fn(&wgrad::device::Device, &Limits, &Variant)) {
    on_each(devices(), |device| {
        for row in &VARIANTS {
            let limits = Limits {
                name: format!("{} with {}", device.limits().name, row.name),
                ..device.limits().choosing(|kernels| kernels.products = Products::all(row.name))
            };
            if row.runs_on(&limits) {
                body(device, &limits, row);
            } else {
                println!("{}: {} does not run", device.limits().name, row.name);
            }
        }
    });
}

/// Whether one of the kernels belongs to this row.
fn ran(names: &[String], row: &Variant) -> bool {
    row.kernels().any(|kernel| names.iter().any(|name| name.starts_with(&*kernel.name)))
}

#[test]
fn every_row_matches_the_twin_for_all_layouts_and_sizes() {
    let sizes = [
        (1, 1, 1),
        (3, 5, 2),
        (4, 24, 8),
        (33, 36, 40),
        (64, 128, 20),
        (65, 63, 65),
        (128, 132, 16),
        (129, 127, 33),
        (132, 260, 36),
        (200, 64, 100),
    ];
    let batches: [(&[usize], &[usize]); 3] =
        [(&[3, 36, 20], &[3, 20, 132]), (&[2, 132, 4], &[4, 36]), (&[5, 7], &[3, 7, 3])];
    each_row(|device, limits, row| {
        let plan = compare(device, limits, |trace, batch| {
            for transposes in TRANSPOSES {
                for (m, n, k) in sizes {
                    product(trace, batch, (&[m, k], &[k, n]), transposes);
                }
                for shapes in batches {
                    product(trace, batch, shapes, transposes);
                }
            }
        });
        let names = kernels(&plan);
        assert!(ran(&names, row), "{}: {names:?}", limits.name);
    });
}

#[test]
fn every_row_fuses_epilogues_and_reads_16_bit_operands() {
    each_row(|device, limits, row| {
        for types in [[DType::F32; 2], [DType::F16, DType::BF16]] {
            let plan = compare_fused(device, limits, |trace: &Trace, batch| {
                for (i, (m, n, k)) in [(132, 136, 20), (33, 28, 36), (7, 5, 9)].into_iter().enumerate() {
                    for (ta, tb) in TRANSPOSES {
                        let operand =
                            |batch: &mut super::Batch, seed, dims: [usize; 2], swap, dtype| -> Tensor {
                                let shape = swapped(&dims, swap);
                                let data = noise(seed, shape.numel() as usize, -1.0, 1.0);
                                let x = batch.input(trace, shape, data);
                                if dtype == DType::F32 { x } else { x.cast(dtype).cast(DType::F32) }
                            };
                        let a = operand(batch, 1, [m, k], ta, types[0]);
                        let b = operand(batch, 2, [k, n], tb, types[1]);
                        let bias = batch.input(trace, [n], noise(3, n, -1.0, 1.0));
                        let skip = batch.input(trace, [m, n], noise(4, m * n, -1.0, 1.0));
                        let y = a.matmul_transposed(&b, ta, tb).add(&bias).gelu().add(&skip);
                        batch.expect(&format!("{i} {ta} {tb}"), &y, Near { rel: 1e-5, abs: 2e-5 });
                    }
                }
            });
            let names = kernels(&plan);
            assert!(ran(&names, row), "{}: {names:?}", limits.name);
            assert!(names.iter().any(|name| name.contains("+add+gelu+add")), "{names:?}");
            assert!(!names.iter().any(|name| name.starts_with("unpack")), "{names:?}");
        }
    });
}
