// Elements of A as bf16, two to a word.
alias AWord = u32;
alias AFour = vec2<u32>;
const A_IN_WORD = 2u;
fn a_of_four(four: AFour) -> vec4<f32> {
    return bf16_four(four);
}
fn a_of_word(word: AWord, i: u32) -> f32 {
    return bf16_one(word >> (i % 2u * 16u));
}
