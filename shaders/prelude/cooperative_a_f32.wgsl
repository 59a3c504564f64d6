// A in 32 bits, rounded where it is read.
@group(0) @binding(1) var<storage, read_write> a: array<vec4<f32>>;
