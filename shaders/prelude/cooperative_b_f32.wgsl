// B in 32 bits, rounded where it is read.
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f32>>;
