//! Cases of operations on images.

use wgrad::graph::{Tensor, Window};

use super::cases::{Case, Stage, case};

/// Name, image, weight, groups, window.
pub type Convolution = (&'static str, [usize; 4], [usize; 4], usize, Window);

/// Returns convolutions for every convolution kernel, with tiles that are not full.
pub fn shapes_of_convolutions() -> [Convolution; 8] {
    let sq = Window::square;
    [
        ("3x3", [2, 5, 6, 7], [3, 5, 3, 3], 1, sq(3).padding(1)),
        ("many channels", [2, 70, 5, 5], [67, 70, 3, 3], 1, sq(3).padding(1)),
        ("1x1", [3, 9, 5, 4], [18, 9, 1, 1], 1, sq(1)),
        ("stride", [2, 4, 9, 8], [6, 4, 3, 3], 1, sq(3).padding(1).stride(2)),
        ("dilated", [1, 3, 9, 9], [4, 3, 3, 3], 1, sq(3).padding(2).dilation(2)),
        ("wide groups", [2, 32, 5, 6], [16, 16, 3, 3], 2, sq(3).padding(1)),
        ("groups", [2, 6, 4, 5], [9, 2, 3, 3], 3, sq(3).padding(1)),
        ("depthwise", [2, 12, 6, 5], [12, 1, 3, 3], 12, sq(3).padding(1)),
    ]
}

/// Returns the same for tiles of 128: a full one and partial ones, in each pass.
pub fn larger_convolutions() -> [Convolution; 4] {
    let sq = Window::square;
    [
        ("many results", [1, 15, 12, 11], [131, 15, 3, 3], 1, sq(3).padding(1)),
        ("many sources", [1, 131, 13, 12], [13, 131, 3, 3], 1, sq(3).padding(1).stride(2)),
        ("1x1, many of both", [3, 130, 7, 7], [129, 130, 1, 1], 1, sq(1)),
        (
            "large groups",
            [1, 18, 13, 11],
            [262, 9, 2, 3],
            2,
            Window { kernel: [2, 3], ..sq(2).dilation(2).padding(1) },
        ),
    ]
}

pub fn all() -> Vec<Case> {
    let mut list = convolutions();
    list.extend(others());
    list
}

fn convolutions() -> Vec<Case> {
    let sq = Window::square;
    // Name, image, weight, groups, window.
    let shapes = [
        ("conv2d", [2, 3, 5, 6], [4, 3, 3, 3], 1, sq(3).padding(1)),
        ("conv2d with stride", [2, 3, 7, 6], [5, 3, 3, 3], 1, sq(3).padding(1).stride(2)),
        ("conv2d 1x1", [2, 5, 3, 4], [3, 5, 1, 1], 1, sq(1)),
        ("conv2d dilated", [1, 2, 7, 7], [3, 2, 3, 3], 1, sq(3).padding(2).dilation(2)),
        ("conv2d with gaps", [1, 2, 8, 7], [2, 2, 2, 2], 1, sq(2).stride(3)),
        ("conv2d in groups", [2, 4, 4, 5], [6, 2, 3, 3], 2, sq(3).padding(1)),
        ("conv2d depthwise", [2, 4, 5, 4], [4, 1, 3, 3], 4, sq(3).padding(1)),
    ];
    let mut list = Vec::new();
    for (name, image, weight, groups, window) in shapes {
        list.push(case(name, move |s| {
            let (x, w) = (s.x(image, -1.0, 1.0), s.x(weight, -1.0, 1.0));
            x.conv2d(&w, Some(&s.x([weight[0]], -1.0, 1.0)), window, groups)
        }));
    }
    list.push(case("conv_transpose2d", move |s| {
        let (x, w) = (s.x([2, 3, 3, 4], -1.0, 1.0), s.x([3, 2, 3, 3], -1.0, 1.0));
        let window = sq(3).stride(2).padding(1);
        x.conv_transpose2d(&w, Some(&s.x([2], -1.0, 1.0)), window, [1, 0], 1)
    }));
    list
}

/// Returns distinct elements that differ by more than a finite difference, in no order.
fn distinct(s: &Stage, shape: [usize; 4]) -> Tensor {
    let count: usize = shape.iter().product();
    // 37 and the counts here are coprime.
    let data: Vec<f32> = (0..count).map(|i| (i * 37 % count) as f32 * 0.25 - count as f32 * 0.125).collect();
    s.fixed(shape, data)
}

fn others() -> Vec<Case> {
    let sq = Window::square;
    vec![
        case("max_pool2d", move |s| distinct(s, [2, 2, 5, 6]).max_pool2d(sq(3).stride(2).padding(1))),
        case("max_pool2d of relu", move |s| distinct(s, [1, 3, 6, 4]).relu().max_pool2d(sq(2).stride(2))),
        case("avg_pool2d", move |s| {
            s.x([2, 2, 5, 6], -1.0, 1.0).avg_pool2d(sq(3).stride(2).padding(1), false)
        }),
        case("adaptive_avg_pool2d", |s| s.x([2, 2, 5, 7], -1.0, 1.0).adaptive_avg_pool2d([3, 4])),
        case("batch_norm", |s| {
            let x = s.x([3, 2, 3, 3], -1.0, 1.0);
            x.batch_norm_train(&s.x([2], 0.5, 1.5), &s.x([2], -1.0, 1.0), 1e-5, None)
        }),
        case("group_norm", |s| {
            let x = s.x([2, 4, 3, 3], -1.0, 1.0);
            x.group_norm(2, &s.x([4], 0.5, 1.5), &s.x([4], -1.0, 1.0), 1e-5)
        }),
        case("upsample_nearest", |s| s.x([2, 2, 3, 4], -1.0, 1.0).upsample_nearest([7, 6])),
        case("upsample_bilinear", |s| s.x([2, 2, 3, 4], -1.0, 1.0).upsample_bilinear([7, 6], false)),
        case("upsample_bilinear, corners", |s| s.x([2, 2, 3, 4], -1.0, 1.0).upsample_bilinear([5, 2], true)),
        case("zero_pad2d", |s| s.x([2, 2, 3, 4], -1.0, 1.0).zero_pad2d([1, 2], [0, 3])),
    ]
}
