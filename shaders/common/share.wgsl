// What a lane has read for its subgroup; with eight lanes the last four are unused.
struct Shared {
    v0: Row, v1: Row, v2: Row, v3: Row, v4: Row, v5: Row, v6: Row, v7: Row,
}
#if LANES4
// Rows that the lanes of a subgroup of 4 or more read for each other: each lane reads up to eight of them, 4 apart.
const LANES = 4u;
fn shared0(all: Shared) -> Row { return subgroupBroadcast(all.v0, 0u); }
fn shared1(all: Shared) -> Row { return subgroupBroadcast(all.v0, 1u); }
fn shared2(all: Shared) -> Row { return subgroupBroadcast(all.v0, 2u); }
fn shared3(all: Shared) -> Row { return subgroupBroadcast(all.v0, 3u); }
fn shared4(all: Shared) -> Row { return subgroupBroadcast(all.v1, 0u); }
fn shared5(all: Shared) -> Row { return subgroupBroadcast(all.v1, 1u); }
fn shared6(all: Shared) -> Row { return subgroupBroadcast(all.v1, 2u); }
fn shared7(all: Shared) -> Row { return subgroupBroadcast(all.v1, 3u); }
fn shared8(all: Shared) -> Row { return subgroupBroadcast(all.v2, 0u); }
fn shared9(all: Shared) -> Row { return subgroupBroadcast(all.v2, 1u); }
fn shared10(all: Shared) -> Row { return subgroupBroadcast(all.v2, 2u); }
fn shared11(all: Shared) -> Row { return subgroupBroadcast(all.v2, 3u); }
fn shared12(all: Shared) -> Row { return subgroupBroadcast(all.v3, 0u); }
fn shared13(all: Shared) -> Row { return subgroupBroadcast(all.v3, 1u); }
fn shared14(all: Shared) -> Row { return subgroupBroadcast(all.v3, 2u); }
fn shared15(all: Shared) -> Row { return subgroupBroadcast(all.v3, 3u); }
fn shared16(all: Shared) -> Row { return subgroupBroadcast(all.v4, 0u); }
fn shared17(all: Shared) -> Row { return subgroupBroadcast(all.v4, 1u); }
fn shared18(all: Shared) -> Row { return subgroupBroadcast(all.v4, 2u); }
fn shared19(all: Shared) -> Row { return subgroupBroadcast(all.v4, 3u); }
fn shared20(all: Shared) -> Row { return subgroupBroadcast(all.v5, 0u); }
fn shared21(all: Shared) -> Row { return subgroupBroadcast(all.v5, 1u); }
fn shared22(all: Shared) -> Row { return subgroupBroadcast(all.v5, 2u); }
fn shared23(all: Shared) -> Row { return subgroupBroadcast(all.v5, 3u); }
fn shared24(all: Shared) -> Row { return subgroupBroadcast(all.v6, 0u); }
fn shared25(all: Shared) -> Row { return subgroupBroadcast(all.v6, 1u); }
fn shared26(all: Shared) -> Row { return subgroupBroadcast(all.v6, 2u); }
fn shared27(all: Shared) -> Row { return subgroupBroadcast(all.v6, 3u); }
fn shared28(all: Shared) -> Row { return subgroupBroadcast(all.v7, 0u); }
fn shared29(all: Shared) -> Row { return subgroupBroadcast(all.v7, 1u); }
fn shared30(all: Shared) -> Row { return subgroupBroadcast(all.v7, 2u); }
fn shared31(all: Shared) -> Row { return subgroupBroadcast(all.v7, 3u); }
#else
// Rows that the lanes of a subgroup of 8 or more read for each other: each lane reads up to four of them, 8 apart.
const LANES = 8u;
fn shared0(all: Shared) -> Row { return subgroupBroadcast(all.v0, 0u); }
fn shared1(all: Shared) -> Row { return subgroupBroadcast(all.v0, 1u); }
fn shared2(all: Shared) -> Row { return subgroupBroadcast(all.v0, 2u); }
fn shared3(all: Shared) -> Row { return subgroupBroadcast(all.v0, 3u); }
fn shared4(all: Shared) -> Row { return subgroupBroadcast(all.v0, 4u); }
fn shared5(all: Shared) -> Row { return subgroupBroadcast(all.v0, 5u); }
fn shared6(all: Shared) -> Row { return subgroupBroadcast(all.v0, 6u); }
fn shared7(all: Shared) -> Row { return subgroupBroadcast(all.v0, 7u); }
fn shared8(all: Shared) -> Row { return subgroupBroadcast(all.v1, 0u); }
fn shared9(all: Shared) -> Row { return subgroupBroadcast(all.v1, 1u); }
fn shared10(all: Shared) -> Row { return subgroupBroadcast(all.v1, 2u); }
fn shared11(all: Shared) -> Row { return subgroupBroadcast(all.v1, 3u); }
fn shared12(all: Shared) -> Row { return subgroupBroadcast(all.v1, 4u); }
fn shared13(all: Shared) -> Row { return subgroupBroadcast(all.v1, 5u); }
fn shared14(all: Shared) -> Row { return subgroupBroadcast(all.v1, 6u); }
fn shared15(all: Shared) -> Row { return subgroupBroadcast(all.v1, 7u); }
fn shared16(all: Shared) -> Row { return subgroupBroadcast(all.v2, 0u); }
fn shared17(all: Shared) -> Row { return subgroupBroadcast(all.v2, 1u); }
fn shared18(all: Shared) -> Row { return subgroupBroadcast(all.v2, 2u); }
fn shared19(all: Shared) -> Row { return subgroupBroadcast(all.v2, 3u); }
fn shared20(all: Shared) -> Row { return subgroupBroadcast(all.v2, 4u); }
fn shared21(all: Shared) -> Row { return subgroupBroadcast(all.v2, 5u); }
fn shared22(all: Shared) -> Row { return subgroupBroadcast(all.v2, 6u); }
fn shared23(all: Shared) -> Row { return subgroupBroadcast(all.v2, 7u); }
fn shared24(all: Shared) -> Row { return subgroupBroadcast(all.v3, 0u); }
fn shared25(all: Shared) -> Row { return subgroupBroadcast(all.v3, 1u); }
fn shared26(all: Shared) -> Row { return subgroupBroadcast(all.v3, 2u); }
fn shared27(all: Shared) -> Row { return subgroupBroadcast(all.v3, 3u); }
fn shared28(all: Shared) -> Row { return subgroupBroadcast(all.v3, 4u); }
fn shared29(all: Shared) -> Row { return subgroupBroadcast(all.v3, 5u); }
fn shared30(all: Shared) -> Row { return subgroupBroadcast(all.v3, 6u); }
fn shared31(all: Shared) -> Row { return subgroupBroadcast(all.v3, 7u); }
#endif
