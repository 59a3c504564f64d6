// Queries, keys and values in three tensors.
@group(0) @binding(1) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;

fn operand(which: u32, i: u32) -> vec4<f32> {
    switch which {
        case Q: { return q[i]; }
        case K: { return k[i]; }
        default: { return v[i]; }
    }
}
