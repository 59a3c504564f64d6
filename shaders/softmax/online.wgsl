// The maximum of a row and Σ e^(x - maximum) in one reading: the sum so far is rescaled where the maximum grows.
// Below every finite x, so that a difference to it is never infinity minus infinity.
const LOWEST = -0x1.fffffep+127;
struct Seen {
    top: f32,
    sums: vec4<f32>,
}

fn highest_of(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

// Four elements, some of them perhaps not of this row.
fn see(seen: Seen, v: vec4<f32>, inside: vec4<bool>) -> Seen {
    let top = max(seen.top, highest_of(select(vec4(LOWEST), v, inside)));
    return Seen(top, seen.sums * exp(seen.top - top) + select(vec4<f32>(), exp4(v - top), inside));
}

fn see16(seen: Seen, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Seen {
    let top = max(seen.top, highest_of(max(max(a, b), max(c, d))));
    let own = (exp4(a - top) + exp4(b - top)) + (exp4(c - top) + exp4(d - top));
    return Seen(top, seen.sums * exp(seen.top - top) + own);
}
