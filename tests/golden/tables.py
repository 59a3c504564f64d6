"""Writes table.parquet: a table of 5,000 rows with columns of the types that a table can have, and of some it cannot.

Columns, for row i and j = i % 97: `f32` j / 8, `f64` -j / 4, missing where i % 10 = 3, `i64` j - 50, `u32` 2^32 - 1 - j,
`half` i % 7, `cents` the decimal j.25, `flag` whether i is odd, `name` one of three texts, `nested.x` 3 j, `day` dates,
`list` lists. Row groups of 4,500 rows in pages of at most 400 rows, dictionaries for some, Snappy.

    pip install pyarrow==26.0.1
    python tables.py
"""

import datetime
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N = 5000
rows = range(N)
cycle = [i % 97 for i in rows]
table = pa.table({
    "f32": pa.array([j / 8 for j in cycle], pa.float32()),
    "f64": pa.array([None if i % 10 == 3 else -j / 4 for i, j in enumerate(cycle)], pa.float64()),
    "i64": pa.array([j - 50 for j in cycle], pa.int64()),
    "u32": pa.array([2**32 - 1 - j for j in cycle], pa.uint32()),
    "half": pa.array(np.array([i % 7 for i in rows], np.float16)),
    "cents": pa.array([decimal.Decimal(j) + decimal.Decimal("0.25") for j in cycle], pa.decimal64(9, 2)),
    "flag": pa.array([i % 2 == 1 for i in rows]),
    "name": pa.array([["reed", "oak", "fir"][i % 3] for i in rows]),
    "nested": pa.array([{"x": 3 * j} for j in cycle], pa.struct([("x", pa.int32())])),
    "day": pa.array([datetime.date(2020, 1, 1)] * N),
    "list": pa.array([[j] for j in cycle], pa.list_(pa.int32())),
})
options = {"row_group_size": 4500, "max_rows_per_page": 400, "store_decimal_as_integer": True}
here = Path(__file__).parent
pq.write_table(table, here / "table.parquet", compression="snappy", use_dictionary=["name", "day", "half", "f64", "nested.x", "list.list.element"], **options)
pq.write_table(table.slice(0, 2), here / "table_zstd.parquet", compression="zstd")
print(pq.ParquetFile(here / "table.parquet").schema)
