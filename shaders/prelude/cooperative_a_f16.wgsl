// A in the 16 bits that are multiplied.
@group(0) @binding(1) var<storage, read_write> a: array<vec4<f16>>;
