// Whether gradients have NaN or infinities: a flag that every thread may set, by an integer, so that the result is the same
// whatever the order.
#import common/grid
// not_finite: the bits of 1 are set in the flag if the magnitude of an element of x0, x1, .. is at least `least` or NaN; by bits,
// because compilers assume that there is no NaN
// x0 [n0], x1 [n1], .. as bits, or with `least` below 2^16 two to a word, flag [] -> flag
// grid: `threads` threads, folded; each takes every `threads`-th vec4      overrides: none
struct Params {
    threads_x: u32,
    threads: u32,
#repeat i 7
    n$i: u32,
#endrepeat
#repeat i 7
    least$i: u32, // a number's bits
#endrepeat
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> found: atomic<u32>;
@group(0) @binding(2) var<storage, read_write> x0: array<vec4<u32>>;
#if X1
@group(0) @binding(3) var<storage, read_write> x1: array<vec4<u32>>;
#endif
#if X2
@group(0) @binding(4) var<storage, read_write> x2: array<vec4<u32>>;
#endif
#if X3
@group(0) @binding(5) var<storage, read_write> x3: array<vec4<u32>>;
#endif
#if X4
@group(0) @binding(6) var<storage, read_write> x4: array<vec4<u32>>;
#endif
#if X5
@group(0) @binding(7) var<storage, read_write> x5: array<vec4<u32>>;
#endif
#if X6
@group(0) @binding(8) var<storage, read_write> x6: array<vec4<u32>>;
#endif

fn words(n: u32, least: u32) -> u32 { return select(n, n / 2u + n % 2u, least < 0x10000u); }
fn quads(n: u32, least: u32) -> u32 { return words(n, least) / 4u + u32(words(n, least) % 4u > 0u); }

// Elements past the end are padding.
fn is_bad(v: vec4<u32>, quad: u32, n: u32, least: u32) -> bool {
    let word = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    if (least < 0x10000u) {
        let low = ((v & vec4(0x7fffu)) >= vec4(least)) & (word * 2u < vec4(n));
        return any(low | ((((v >> vec4(16u)) & vec4(0x7fffu)) >= vec4(least)) & (word * 2u + 1u < vec4(n))));
    }
    return any(((v & vec4(0x7fffffffu)) >= vec4(least)) & (word < vec4(n)));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i >= p.threads) {
        return;
    }
    var bad = false;
    for (var l = i; l < quads(p.n0, p.least0); l += p.threads) { bad |= is_bad(x0[l], l, p.n0, p.least0); }
#if X1
    for (var l = i; l < quads(p.n1, p.least1); l += p.threads) { bad |= is_bad(x1[l], l, p.n1, p.least1); }
#endif
#if X2
    for (var l = i; l < quads(p.n2, p.least2); l += p.threads) { bad |= is_bad(x2[l], l, p.n2, p.least2); }
#endif
#if X3
    for (var l = i; l < quads(p.n3, p.least3); l += p.threads) { bad |= is_bad(x3[l], l, p.n3, p.least3); }
#endif
#if X4
    for (var l = i; l < quads(p.n4, p.least4); l += p.threads) { bad |= is_bad(x4[l], l, p.n4, p.least4); }
#endif
#if X5
    for (var l = i; l < quads(p.n5, p.least5); l += p.threads) { bad |= is_bad(x5[l], l, p.n5, p.least5); }
#endif
#if X6
    for (var l = i; l < quads(p.n6, p.least6); l += p.threads) { bad |= is_bad(x6[l], l, p.n6, p.least6); }
#endif
    if (bad) {
        atomicOr(&found, 0x3f800000u);
    }
}
