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
