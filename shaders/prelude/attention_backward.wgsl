// What the gradients of attention read besides the operands: the gradient of the result, and for each row of scores the
// logarithm of the sum of its exponentials and the mean slope of its weights (attention_means).
@group(0) @binding(4) var<storage, read_write> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> stats: array<vec2<f32>>;

fn source(which: u32, i: u32) -> vec4<f32> {
    if (which == DY) {
        return dy[i];
    }
    return operand(which, i);
}
