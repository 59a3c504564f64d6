//! Operations that only graph passes create: convolutions that read through a norm or concatenate two images,
//! products of 16-bit operands, and those on what ranks send.

use wgrad::dtype::DType;
use wgrad::graph::{Activation, Op, Running, Source, Window};
use wgrad::shape::Shape;

/// An operation with the types of its operands and results.
pub struct Typed {
    pub op: Op,
    pub inputs: Vec<(Shape, DType)>,
    pub outputs: Vec<(Shape, DType)>,
}

fn f32s(shapes: &[&[usize]]) -> Vec<(Shape, DType)> {
    shapes.iter().map(|dims| (Shape::try_new(dims).expect("few dimensions"), DType::F32)).collect()
}

pub fn rewritten() -> Vec<Typed> {
    let mut list = Vec::new();
    for (side, c, o, groups) in [(9, 12, 12, 12), (20, 6, 7, 1), (40, 64, 64, 1), (80, 256, 256, 1)] {
        convolutions(&mut list, [2, c, side, side], o, groups);
    }
    for a in [DType::F32, DType::F16, DType::BF16] {
        for b in [DType::F32, DType::F16, DType::BF16] {
            for side in [30, 64, 2048] {
                let square = Shape::from([side, side]);
                list.push(Typed {
                    op: Op::MatMul { ta: false, tb: true, then: None },
                    inputs: vec![(square, a), (square, b)],
                    outputs: vec![(square, DType::F32)],
                });
            }
        }
    }
    for len in [30, 1 << 20] {
        let (parts, sum): (&[usize], &[usize]) = (&[5, len], &[len]);
        for inputs in [&[parts][..], &[parts, sum]] {
            list.push(Typed {
                op: Op::SumParts { shape: Shape::from([len]) },
                inputs: f32s(inputs),
                outputs: f32s(&[sum]),
            });
        }
    }
    list.push(Typed {
        op: Op::RunningStats(Running { momentum: 0.1, unbias: 1.0 }),
        inputs: f32s(&[&[7], &[7], &[5, 7], &[5, 7]]),
        outputs: Vec::new(),
    });
    list
}

fn convolutions(list: &mut Vec<Typed>, image: [usize; 4], o: usize, groups: usize) {
    let [n, c, h, w] = image;
    let window = Window::square(3).padding(1);
    let (weight, terms, bias) = ([o, c / groups, 3, 3], [c], [o]);
    let normed: [&[usize]; 7] = [&image, &weight, &terms, &terms, &terms, &terms, &bias];
    let parts = [[n, c / 2, h, w], [n, c - c / 2, h, w]];
    let joined: [&[usize]; 4] = [&parts[0], &weight, &bias, &parts[1]];
    let unbiased = [joined[0], joined[1], joined[3]];
    let activation = Activation::Relu;
    let sources: [(Source, &[&[usize]]); 6] = [
        (Source::Tensor, &normed[..2]),
        (Source::Tensor, &joined[..3]),
        (Source::Normed(activation), &normed[..6]),
        (Source::Normed(activation), &normed),
        (Source::Joined, &unbiased),
        (Source::Joined, &joined),
    ];
    let result = [n, o, h, w];
    for (source, shapes) in sources {
        if source == Source::Joined && groups > 1 {
            continue;
        }
        // A plain convolution reads the whole image.
        let mut inputs = f32s(shapes);
        if source == Source::Tensor {
            inputs[0] = (Shape::from(image), DType::F32);
        }
        list.push(Typed {
            op: Op::Conv2d { window, groups, source, then: None },
            inputs,
            outputs: f32s(&[&result]),
        });
    }
    list.push(Typed {
        op: Op::Conv2dWeight { window, groups, normed: Some(activation) },
        inputs: f32s(&[&image, &result, &terms, &terms, &terms, &terms]),
        outputs: f32s(&[&weight]),
    });
}
