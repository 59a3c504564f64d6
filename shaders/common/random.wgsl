// Jarzynski & Olano, "Hash Functions for GPU Rendering" (JCGT 2020): four random words from four.
fn pcg4d(seed: vec4<u32>) -> vec4<u32> {
    var v = seed * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v = v ^ (v >> vec4(16u));
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}
#if DROPOUT

// Dropout of the elements 4 i to 4 i + 3. The mask is a function of (seed, step / every, key, element) by pcg4d (Jarzynski &
// Olano 2020): drawn again, it is the same. `scalars` are graph::StepScalars.
fn dropout(v: vec4<f32>, i: u32, key: u32, every: u32, threshold: u32, scale: f32) -> vec4<f32> {
    let drawn = pcg4d(vec4(i, key, (scalars[3] / every) ^ scalars[5], scalars[4]));
    return select(vec4(0.0), v * scale, drawn >= vec4(threshold));
}
#endif
