// New keys and values, and the caches of those before them: in 32 or 16 bits, or with UINT8 in codes of 8 bits, where a group is 64
// elements of a head. i counts vec4s.
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> cached_k: array<Stored>;
@group(0) @binding(5) var<storage, read_write> cached_v: array<Stored>;
#if UINT8
#import common/codes
alias Stored = u32;
fn key_at(i: u32) -> vec4<f32> { return four_of_codes(i, cached_k[codes_at(i)], cached_k[scales_at(i)]); }
fn value_at(i: u32) -> vec4<f32> { return four_of_codes(i, cached_v[codes_at(i)], cached_v[scales_at(i)]); }
fn quad_of(values: bool, i: u32) -> vec4<f32> {
    if (values) {
        return v[i];
    }
    return k[i];
}

// The codes of quad i of the new keys or values, each the nearest, and the least number and the step of its group, which begins
// at `first`.
fn encoded(values: bool, i: u32, first: u32) -> vec2<u32> {
    var low = vec4(0xffffffffu);
    var high = vec4(0u);
    for (var c = 0u; c < 16u; c += 1u) {
        let bits = ordered(bitcast<vec4<u32>>(quad_of(values, first + c)));
        low = min(low, bits);
        high = max(high, bits);
    }
    let terms = terms_of(min(min(low.x, low.y), min(low.z, low.w)), max(max(high.x, high.y), max(high.z, high.w)));
    let step = terms >> 16u;
    // Without a step, and where it is NaN, codes are 0.
    if (step == 0u || step >= 0x7f80u) {
        return vec2(0u, terms);
    }
    let above = quad_of(values, i) - bitcast<f32>(terms << 16u);
    let codes = vec4<u32>(clamp(round(above / bitcast<f32>(step << 16u)), vec4(0.0), vec4(LEVELS))) << vec4(0u, 8u, 16u, 24u);
    return vec2(codes.x | codes.y | codes.z | codes.w, terms);
}
fn store_quad(place: u32, source: u32) {
    let first = source - place % 16u;
    let key = encoded(false, source, first);
    let value = encoded(true, source, first);
    cached_k[codes_at(place)] = key.x;
    cached_v[codes_at(place)] = value.x;
    if (place % 16u == 0u) {
        cached_k[scales_at(place)] = key.y;
        cached_v[scales_at(place)] = value.y;
    }
}
#else
#if F16 || BF16
#import common/half
alias Stored = vec2<u32>;
fn loaded(stored: Stored) -> vec4<f32> { return bitcast<vec4<f32>>(widened(stored)); }
fn stored_of(x: vec4<f32>) -> Stored {
    let half = to_half(bitcast<vec4<u32>>(x));
    return half.xz | (half.yw << vec2(16u));
}
#else
alias Stored = vec4<f32>;
fn loaded(stored: Stored) -> vec4<f32> { return stored; }
fn stored_of(x: vec4<f32>) -> Stored { return x; }
#endif
fn key_at(i: u32) -> vec4<f32> { return loaded(cached_k[i]); }
fn value_at(i: u32) -> vec4<f32> { return loaded(cached_v[i]); }
fn store_quad(place: u32, source: u32) {
    cached_k[place] = stored_of(k[source]);
    cached_v[place] = stored_of(v[source]);
}
#endif
