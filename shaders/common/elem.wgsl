// The elements that a thread computes at once: one, or with VEC4 four.
#if !VEC4 && !NORMED && !ELEM4
// Elements one by one.
alias Elem = f32;
alias InMemory = f32;
fn from_memory(v: InMemory) -> Elem { return v; }
// `r`, or `v` where that is NaN: bits are compared, because compilers may assume that there is none.
fn or_nan(v: Elem, r: Elem) -> Elem { return select(r, v, (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u); }
fn to_memory(v: Elem) -> InMemory { return v; }
#elif U64
// vec4 of elements, as elem4.wgsl; in memory two words of 64 bits: software adapters go through memory word by word.
alias Elem = vec4<f32>;
alias InMemory = vec2<u64>;
fn from_memory(words: InMemory) -> Elem {
    let low = vec2<u32>(words);
    let high = vec2<u32>(words >> vec2(32u));
    return bitcast<vec4<f32>>(vec4(low.x, high.x, low.y, high.y));
}
// `r`, or `v` where that is NaN: bits are compared, because compilers may assume that there is none.
fn or_nan(v: Elem, r: Elem) -> Elem {
    return select(r, v, (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) > vec4(0x7f800000u));
}
fn to_memory(v: Elem) -> InMemory {
    let bits = bitcast<vec4<u32>>(v);
    return vec2<u64>(bits.xz) | (vec2<u64>(bits.yw) << vec2(32u));
}
#else
// vec4 of elements. Every tensor's memory is a multiple of 16 bytes, so the last vec4 may reach into its padding.
alias Elem = vec4<f32>;
alias InMemory = vec4<f32>;
fn from_memory(v: InMemory) -> Elem { return v; }
// `r`, or `v` where that is NaN: bits are compared, because compilers may assume that there is none.
fn or_nan(v: Elem, r: Elem) -> Elem {
    return select(r, v, (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) > vec4(0x7f800000u));
}
fn to_memory(v: Elem) -> InMemory { return v; }
#endif
#if TOTAL

#if VEC4
// The sum of what an Elem holds, and its first element.
fn total(v: Elem) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn one_of(v: Elem) -> f32 { return v.x; }
#else
// The sum of what an Elem holds, and its first element.
fn total(v: Elem) -> f32 { return v; }
fn one_of(v: Elem) -> f32 { return v; }
#endif
#endif
