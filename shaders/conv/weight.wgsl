// The weight's gradient as a matrix product: rows are result channels, columns (source channel, tap), the inner
// dimension is all pixels of all images, cut into parts. Pairs are (rows, columns).
struct Params {
    grid_x: u32,
    tiles_m: u32,
    tiles_n: u32,
    groups: u32,
    parts: u32,
    part_len: u32,
    m: u32, // result channels of a group
    kc: u32, // source channels of a group
    batch: u32,
    total: u32, // elements of the gradient
    kernel: vec2<u32>,
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    image: vec2<u32>,
    result: vec2<u32>,
}
@group(0) @binding(0) var<uniform> p: Params;

// For four columns: the offset of their element, their tap's row and column in the image, and how it is read.
struct Taps {
    offset: vec4<u32>,
    row: vec4<u32>,
    column: vec4<u32>,
    terms: Terms,
}

fn taps_of(at: vec4<u32>, group: u32) -> Taps {
    let taps = p.kernel.x * p.kernel.y;
    let c = at / taps;
    let tap = at - c * taps;
    let r = tap / p.kernel.y;
    let row = r * p.dilation.x;
    let column = (tap - r * p.kernel.y) * p.dilation.y;
    let terms = terms_of_each(group * p.kc + c);
    return Taps((c * p.image.x + row) * p.image.y + column, row, column, terms);
}

// The elements under four taps for result pixel (oy, ox) of the image at `base`; zero outside of it.
fn taken(taps: Taps, base: u32, oy: u32, ox: u32) -> vec4<f32> {
    // Negative coordinates wrap to large ones.
    let y = oy * p.stride.x - p.padding.x;
    let x0 = ox * p.stride.y - p.padding.y;
    let inside = (taps.row + y < vec4(p.image.x)) & (taps.column + x0 < vec4(p.image.y));
    let at = select(vec4<u32>(), taps.offset + (base + y * p.image.y + x0), inside);
    return select(vec4<f32>(), read(image_at(at), taps.terms), inside);
}

fn store(at: u32, column: vec4<u32>, columns: u32, v: vec4<f32>) {
    if (column.x < columns) { parts[at + column.x] = v.x; }
    if (column.y < columns) { parts[at + column.y] = v.y; }
    if (column.z < columns) { parts[at + column.z] = v.z; }
    if (column.w < columns) { parts[at + column.w] = v.w; }
}
