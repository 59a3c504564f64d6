// A convolution's image in 32 bits.
@group(0) @binding(1) var<storage, read_write> src: array<f32>;

fn image_at(at: vec4<u32>) -> vec4<f32> {
    return vec4(src[at.x], src[at.y], src[at.z], src[at.w]);
}
