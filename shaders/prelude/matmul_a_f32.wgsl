// Elements of A in 32 bits.
alias AWord = f32;
alias AFour = vec4<f32>;
const A_IN_WORD = 1u;
fn a_of_four(four: AFour) -> vec4<f32> {
    return four;
}
fn a_of_word(word: AWord, i: u32) -> f32 {
    return word;
}
