// A convolution's image in 16 bits, two to a word.
@group(0) @binding(1) var<storage, read_write> src: array<u32>;

fn image_at(at: vec4<u32>) -> vec4<f32> {
    return one_of_two(vec4(src[at.x >> 1u], src[at.y >> 1u], src[at.z >> 1u], src[at.w >> 1u]), at);
}
