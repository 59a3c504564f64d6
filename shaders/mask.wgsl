// mask: y = a bit for each element of s, 32 to a word: whether a function lets its gradient pass (prelude/mask.wgsl)
// s [n] -> y [n / 32] u32
// grid: one thread per word, folded (CPU adapters)      overrides: F
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = thread_number(id, p.threads_x);
    if (i < p.words) {
        let first = 8u * i;
        let low = four(first) | (four(first + 1u) << 4u) | (four(first + 2u) << 8u) | (four(first + 3u) << 12u);
        let high = four(first + 4u) | (four(first + 5u) << 4u) | (four(first + 6u) << 8u) | (four(first + 7u) << 12u);
        y[i] = low | (high << 16u);
    }
}
