// Elements of B as f16, two to a word.
alias BWord = u32;
alias BFour = vec2<u32>;
const B_IN_WORD = 2u;
fn b_of_four(four: BFour) -> vec4<f32> {
    return f16_four(four);
}
fn b_of_word(word: BWord, i: u32) -> f32 {
    return f16_one(word >> (i % 2u * 16u));
}
