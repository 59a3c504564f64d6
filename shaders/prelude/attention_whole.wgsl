// No dropout.
const DROPOUT = false;

fn kept(row: u32, quad: u32) -> vec4<f32> {
    return vec4(1.0);
}
