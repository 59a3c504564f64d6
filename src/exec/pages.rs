//! Which tokens the pages of a KV cache hold.

/// The pages of a KV cache. The tokens of a text are those of a path of pages from the root; texts that begin alike share the
/// pages of their beginning (Kwon et al. 2023).
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// The pages, and last the root, which holds no tokens.
    pages: Vec<Page>,
    /// Tokens of a page.
    size: usize,
    /// Number of the current call. Its texts keep the pages that they use.
    call: u64,
}

#[derive(Clone, Debug, Default)]
struct Page {
    tokens: Vec<u32>,
    /// The page of the tokens before these, once the page is in use.
    parent: Option<usize>,
    children: Vec<usize>,
    /// The last call that used it.
    call: u64,
}

/// The pages of a text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) pages: Vec<usize>,
    /// Tokens of the text that they hold.
    pub(super) tokens: usize,
}

impl Pages {
    pub(super) fn new(pages: usize, size: usize) -> Self {
        Self { pages: vec![Page::default(); pages + 1], size, call: 0 }
    }

    /// Returns the number of pages.
    pub(super) fn count(&self) -> usize {
        self.pages.len() - 1
    }

    /// Returns the tokens of a page.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Begins a call.
    pub(super) fn begin(&mut self) {
        self.call += 1;
    }

    /// Returns the pages of the longest beginning of `text` that is there, for the next text of this call.
    pub(super) fn find(&self, text: &[u32]) -> Held {
        self.longest(text, self.call)
    }

    /// Returns how many of the first tokens of `text` are there.
    pub(super) fn known(&self, text: &[u32]) -> usize {
        self.longest(text, u64::MAX).tokens
    }

    /// Whole pages are shared. One that gets more tokens must be the last of its text, and in use by no other in call `now`.
    fn longest(&self, text: &[u32], now: u64) -> Held {
        let (mut held, mut at) = (Held::default(), self.count());
        loop {
            let rest = &text[held.tokens..];
            let common = |i: usize| self.pages[i].tokens.iter().zip(rest).take_while(|(a, b)| a == b).count();
            let free = |i: usize| self.pages[i].children.is_empty() && self.pages[i].call != now;
            let found = self.pages[at].children.iter().map(|&i| (common(i), i));
            let found = found.filter(|&(common, i)| common == self.size || common > 0 && free(i));
            // Two texts may have computed pages of the same tokens: the one with more after it.
            let order = |&(common, i): &(usize, usize)| (common, !self.pages[i].children.is_empty(), i);
            let Some((common, i)) = found.max_by_key(order) else { return held };
            held.pages.push(i);
            held.tokens += common;
            if common < self.size {
                return held;
            }
            at = i;
        }
    }

    /// Keeps the pages of a text for this call. The last one is cut to the tokens of the text.
    pub(super) fn hold(&mut self, held: &Held) {
        for (k, &i) in held.pages.iter().enumerate() {
            let page = &mut self.pages[i];
            page.tokens.truncate(held.tokens - k * self.size);
            page.call = self.call;
        }
    }

    /// Gives back pages that no other text of this call uses.
    pub(super) fn release(&mut self, pages: &[usize]) {
        pages.iter().for_each(|&i| self.pages[i].call = 0);
    }

    /// Takes pages for the first `tokens` tokens of a text: those that were used least recently, of texts that are not in this
    /// call. Returns whether there are enough.
    pub(super) fn grow(&mut self, held: &mut Held, tokens: usize) -> bool {
        while held.pages.len() * self.size < tokens {
            // Where a page is in use, so are those before it: one without children can be found as long as any is free.
            let free = |page: &Page| page.children.is_empty() && page.call < self.call;
            let of_use = |&i: &usize| self.pages[i].call;
            let taken = (0..self.count()).filter(|&i| free(&self.pages[i])).min_by_key(of_use);
            let Some(i) = taken else { return false };
            if let Some(parent) = self.pages[i].parent {
                self.pages[parent].children.retain(|&child| child != i);
            }
            let parent = *held.pages.last().unwrap_or(&self.count());
            self.pages[parent].children.push(i);
            let (tokens, children) = (Vec::with_capacity(self.size), Vec::new());
            self.pages[i] = Page { tokens, parent: Some(parent), children, call: self.call };
            held.pages.push(i);
        }
        true
    }

    /// Adds tokens of a text whose keys and values are now in its pages.
    pub(super) fn fill(&mut self, held: &mut Held, tokens: &[u32]) {
        for &token in tokens {
            self.pages[held.pages[held.tokens / self.size]].tokens.push(token);
            held.tokens += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes a text: what was there of it, and its pages.
    fn compute(pages: &mut Pages, text: &[u32]) -> (usize, Held) {
        let mut held = pages.find(text);
        pages.hold(&held);
        let known = held.tokens;
        assert!(pages.grow(&mut held, text.len()), "{text:?}");
        pages.fill(&mut held, &text[known..]);
        (known, held)
    }

    #[test]
    fn texts_share_whole_pages_of_their_beginning() {
        let mut pages = Pages::new(4, 4);
        pages.begin();
        let (known, first) = compute(&mut pages, &[1, 2, 3, 4, 5, 6]);
        assert_eq!((known, first.pages.len(), first.tokens), (0, 2, 6));
        // In the same call a page that is not full stays that of its text.
        let (known, second) = compute(&mut pages, &[1, 2, 3, 4, 5, 6]);
        assert_eq!((known, second.pages[0]), (4, first.pages[0]));
        assert_ne!(second.pages[1], first.pages[1]);
        let (known, third) = compute(&mut pages, &[1, 2, 9]);
        assert_eq!((known, third.pages.len()), (0, 1));
        let mut fourth = pages.find(&[7]);
        assert!(!pages.grow(&mut fourth, 1), "all pages are in use");
        // A later one goes on from it, or from a part of it.
        pages.begin();
        assert_eq!(compute(&mut pages, &[1, 2, 3, 4, 5, 8, 8]).0, 5);
        assert_eq!(pages.known(&[1, 2, 3, 4, 5, 8, 8, 8]), 7);
        assert_eq!(pages.known(&[1, 2, 8]), 2);
    }

    #[test]
    fn pages_least_recently_used_are_taken_from_their_ends() {
        let mut pages = Pages::new(3, 2);
        for text in [&[1, 2, 3, 4][..], &[5, 6], &[1, 2]] {
            pages.begin();
            compute(&mut pages, text);
        }
        // The end of the first text, then the second; the page that was asked for last stays.
        pages.begin();
        compute(&mut pages, &[7]);
        assert_eq!([&[1, 2, 3, 4][..], &[5, 6], &[7]].map(|text| pages.known(text)), [2, 2, 1]);
        pages.begin();
        compute(&mut pages, &[8]);
        assert_eq!([&[1, 2][..], &[5, 6], &[7], &[8]].map(|text| pages.known(text)), [2, 0, 1, 1]);
        // A page before others is not taken before them.
        pages.begin();
        let (_, held) = compute(&mut pages, &[1, 2, 3, 4, 5]);
        assert_eq!(held.pages.len(), 3);
        assert_eq!(pages.known(&[7]), 0);
    }

    #[test]
    fn of_pages_with_the_same_tokens_the_one_with_more_after_it_is_found() {
        let mut pages = Pages::new(4, 2);
        pages.begin();
        compute(&mut pages, &[1, 2, 3, 4]);
        // A text computes its last token again, here in a page of its own, since the first has others after it.
        let mut held = pages.find(&[1]);
        assert_eq!(held, Held::default());
        assert!(pages.grow(&mut held, 2));
        pages.fill(&mut held, &[1, 2]);
        assert_eq!(pages.known(&[1, 2, 3, 4]), 4);
    }

    #[test]
    fn pages_that_were_given_back_are_free_in_the_same_call() {
        let mut pages = Pages::new(1, 4);
        pages.begin();
        let (_, held) = compute(&mut pages, &[1, 2]);
        pages.release(&held.pages);
        assert_eq!(compute(&mut pages, &[1, 2, 3]), (2, Held { pages: held.pages, tokens: 3 }));
    }
}
