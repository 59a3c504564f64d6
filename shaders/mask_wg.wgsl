// mask_wg: as mask.wgsl
// grid: one thread per four elements, so that neighbours read neighbours; eight share a word, folded      overrides: F
var<workgroup> parts: array<u32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = thread_number(id, p.threads_x);
    parts[lane] = four(i) << (4u * (i % 8u));
    workgroupBarrier();
    if (i % 8u == 0u && i / 8u < p.words) {
        let low = parts[lane] | parts[lane + 1u] | parts[lane + 2u] | parts[lane + 3u];
        let high = parts[lane + 4u] | parts[lane + 5u] | parts[lane + 6u] | parts[lane + 7u];
        y[i / 8u] = low | high;
    }
}
