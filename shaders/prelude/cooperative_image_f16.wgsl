// A convolution's image in the 16 bits that are multiplied.
@group(0) @binding(1) var<storage, read_write> src: array<f16>;

fn image_at(at: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(vec4(src[at.x], src[at.y], src[at.z], src[at.w]));
}
