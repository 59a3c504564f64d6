// Lanes of a subgroup that share loads, on CPU adapters. Software adapters gather every load lane by lane, so loads decide
// the speed: each lane loads every LANES-th row (of a matrix, of weights, of keys), and broadcasts give each row to all
// lanes. Row i is `subgroupBroadcast(v$(i / LANES), $(i % LANES)u)`, where v0, v1, … are what a lane has loaded. No branch
// surrounds a broadcast: all lanes execute it. With LANES4 subgroups of 4 suffice, else 8 are needed.
#if LANES4
#let LANES 4
#else
#let LANES 8
#endif
const LANES = $(LANES)u;
