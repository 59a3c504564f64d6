// sgd without state: the step is the gradient.
fn velocity(i: u32, gradient: vec4<f32>) -> vec4<f32> {
    return gradient;
}
