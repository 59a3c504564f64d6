// An operand that was stored since the forward pass, or by it: in 32 bits, or in 16 bits, two to a word.
#if HELD_F16 || HELD_BF16
#import common/half
#if VEC4
alias Held = vec2<u32>;
#else
alias Held = u32;
#endif
#else
alias Held = InMemory;
#endif
#if HELD_SECOND
@group(0) @binding(2) var<storage, read_write> held: array<Held>;
#elif HELD_THIRD
@group(0) @binding(3) var<storage, read_write> held: array<Held>;
#else
@group(0) @binding(1) var<storage, read_write> held: array<Held>;
#endif

fn held_at(i: u32) -> Elem {
#if !HELD_F16 && !HELD_BF16
    return from_memory(held[i]);
#elif VEC4
    return bitcast<vec4<f32>>(widened(held[i]));
#else
    return one_of_two(vec4(held[i / 2u]), vec4(i)).x;
#endif
}
