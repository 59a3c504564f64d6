// What an average is taken over, for each axis a range of the image: a window, or with ADAPTIVE one of `result` bins.
override ADAPTIVE: bool = false;
override COUNT_PADDING: bool = false;
struct Params {
    threads_x: u32,
    total: u32,
    kernel: vec2<u32>, // pairs are (rows, columns)
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    image: vec2<u32>,
    result: vec2<u32>,
    pieces: vec2<u32>, // of a sum, for a thread each
    piece: vec2<u32>,
}
@group(0) @binding(0) var<uniform> p: Params;

struct Bin {
    start: u32,
    end: u32,
    // What this axis contributes to the divisor.
    size: u32,
}

fn bin_of(o: u32, image: u32, result: u32, kernel: u32, stride: u32, padding: u32) -> Bin {
    if (ADAPTIVE) {
        let start = o * image / result;
        let end = ((o + 1u) * image + result - 1u) / result;
        return Bin(start, end, end - start);
    }
    let begin = o * stride;
    let to = min(begin + kernel, image + 2u * padding);
    let start = max(begin, padding) - padding;
    let end = min(max(to, padding) - padding, image);
    return Bin(start, end, select(end - start, to - begin, COUNT_PADDING));
}

fn row_bin(o: u32) -> Bin {
    return bin_of(o, p.image.x, p.result.x, p.kernel.x, p.stride.x, p.padding.x);
}

fn column_bin(o: u32) -> Bin {
    return bin_of(o, p.image.y, p.result.y, p.kernel.y, p.stride.y, p.padding.y);
}

// First and end of the bins that element i may lie in.
fn bins_over(i: u32, image: u32, result: u32, kernel: u32, stride: u32, padding: u32) -> vec2<u32> {
    if (ADAPTIVE) {
        return vec2(i * result / image, min(((i + 1u) * result - 1u) / image, result - 1u) + 1u);
    }
    let near = i + padding;
    // Behind the last window lie no elements of one.
    return vec2(min((max(near + stride, kernel) - kernel) / stride, result), min(near / stride + 1u, result));
}
