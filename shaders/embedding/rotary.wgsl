// Rotary position embedding.
#import common/elem
#import common/grid
#import common/operand
// rotary: in the first heads of each position, elements c and c + half become a cos - b sin and b cos + a sin. The angle is
// the position times base^(-2c / d) times the factor of the ramp. Angles are fractions of a turn in 64 bits, so that
// multiplying them by a position wraps exactly; base^(-2c / d) is a product of powers, by the bits of c.
// x [batch positions all_heads, 2, half], with POSITIONS places [batch positions] -> y like x, or in place
// grid: one thread per pair of a position, for a group of heads, folded      overrides: none
struct Params {
    threads_x: u32,
    jobs: u32,
    half: u32, // pairs
    groups: u32, // of heads that are written: all, or in place those that are turned
    group: u32, // heads of a group
    heads: u32, // that are turned
    done_heads: u32, // that are written
    all_heads: u32,
    positions: u32,
    bits: u32, // of the largest pair's number
    turn: f32, // 1, or -1 to turn back
    unused: u32,
    powers: array<vec4<u32>, 8>, // low and high word of base^(-2 2^k / d) 2^64, for two k each
    ramp: vec4<u32>, // of the factors of frequencies f: low and high word of far 2^64, slope, offset
}
@group(0) @binding(0) var<uniform> p: Params;

#if POSITIONS
@group(0) @binding(3) var<storage, read_write> places: array<u32>;
fn position_of(row: u32) -> u32 { return places[row]; }
#else
fn position_of(row: u32) -> u32 { return row % p.positions; }
#endif

// Low and high half of a product.
fn wide(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

// The product of two fractions in 64 bits, (low, high); at most three units too small.
fn times(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = wide(a.y, b.y);
    let first = wide(a.y, b.x).y;
    let second = wide(a.x, b.y).y;
    let one = product.x + first;
    let both = one + second;
    return vec2(both, product.y + select(0u, 1u, one < first) + select(0u, 1u, both < second));
}

// Revolutions of pair c per position, a fraction in 64 bits.
fn turns_of(c: u32) -> vec2<u32> {
    // 1 / 2π: a radian as a fraction of a turn.
    var turns = vec2(0x9391054au, 0x28be60dbu);
    for (var k = 0u; k < p.bits; k++) {
        if (((c >> k) & 1u) == 1u) {
            let two = p.powers[k / 2u];
            turns = times(turns, select(two.xy, two.zw, (k & 1u) == 1u));
        }
    }
    // The factor: far + (1 - far) t with t = f slope + offset within 0 and 1.
    let t = f32(turns.y) * 2.3283064365386963e-10 * bitcast<f32>(p.ramp.z) + bitcast<f32>(p.ramp.w); // 2^-32
    if (t <= 0.0) {
        turns = times(turns, p.ramp.xy);
    } else if (t < 1.0) {
        let far = f32(p.ramp.y) * 2.3283064365386963e-10;
        let factor = (far + (1.0 - far) * t) * 4294967296.0;
        let whole = floor(factor);
        turns = times(turns, vec2(u32((factor - whole) * 4294967296.0), u32(whole)));
    }
    return turns;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let job = thread_number(id, p.threads_x);
    if (job >= p.jobs) {
        return;
    }
    let row = job / p.half;
    let c = job - row * p.half;
    let place = row / p.groups;
    let first = (row - place * p.groups) * p.group;
    let turns = turns_of(c);
    let position = position_of(place);
    let angle = position * turns.y + wide(position, turns.x).y;
    // The nearest quarter of a turn, and what is left: at most an eighth.
    let quarter = (angle + 0x20000000u) >> 30u;
    let left = f32(bitcast<i32>(angle - (quarter << 30u))) * 1.4629180792671596e-9; // 2π / 2^32
    let square = left * left;
    // Polynomials of Cephes' sinf and cosf, within 1e-7.
    let s = left + left * square * (-1.6666654611e-1 + square * (8.3321608736e-3 - square * 1.9515295891e-4));
    let k = 1.0 - 0.5 * square
        + square * square * (4.166664568298827e-2 + square * (-1.388731625493765e-3 + square * 2.443315711809948e-5));
    let swap = (quarter & 1u) == 1u;
    let sine = p.turn * select(s, k, swap) * select(1.0, -1.0, (quarter & 2u) == 2u);
    let cosine = select(k, s, swap) * select(1.0, -1.0, ((quarter + 1u) & 2u) == 2u);
    for (var head = first; head < min(first + p.group, p.done_heads); head++) {
        let at = (place * p.all_heads + head) * 2u * p.half + c;
        let a = x_at(at);
        let b = x_at(at + p.half);
        set_y(at, select(a, a * cosine - b * sine, head < p.heads));
        set_y(at + p.half, select(b, b * cosine + a * sine, head < p.heads));
    }
}
