// Cooperative matrices: 8 x 8 with SIDE8, else 16 x 16.
#if SIDE8
// Cooperative matrices of 8 x 8: the lanes of a subgroup hold them together. Metal reads tiles by scalars only.
enable f16;
enable wgpu_cooperative_matrix;
alias PartA = coop_mat8x8<f16, A>;
alias PartB = coop_mat8x8<f16, B>;
alias Sums = coop_mat8x8<f32, C>;
const SIDE = 8u;

// An element of the tiles in workgroup memory, and how many numbers it is.
alias Unit = f16;
const UNIT = 1u;
fn keep_four(at: u32, v: vec4<f16>) {
    tile[at] = v.x;
    tile[at + 1u] = v.y;
    tile[at + 2u] = v.z;
    tile[at + 3u] = v.w;
}
#else
// Cooperative matrices of 16 x 16: the lanes of a subgroup hold them together. No Metal device has them.
enable f16;
enable wgpu_cooperative_matrix;
alias PartA = coop_mat16x16<f16, A>;
alias PartB = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;
const SIDE = 16u;

// An element of the tiles in workgroup memory, and how many numbers it is.
alias Unit = vec4<f16>;
const UNIT = 4u;
fn keep_four(at: u32, v: vec4<f16>) {
    tile[at / UNIT] = v;
}
#endif
