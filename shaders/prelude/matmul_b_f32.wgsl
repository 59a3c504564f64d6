// Elements of B in 32 bits.
alias BWord = f32;
alias BFour = vec4<f32>;
const B_IN_WORD = 1u;
fn b_of_four(four: BFour) -> vec4<f32> {
    return four;
}
fn b_of_word(word: BWord, i: u32) -> f32 {
    return word;
}
