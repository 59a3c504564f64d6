// What a lane has read for its subgroup; with eight lanes the last four are unused.
struct Shared {
    v0: Row, v1: Row, v2: Row, v3: Row, v4: Row, v5: Row, v6: Row, v7: Row,
}
