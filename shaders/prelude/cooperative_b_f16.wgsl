// B in the 16 bits that are multiplied.
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f16>>;
