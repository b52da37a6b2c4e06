-- pages
SELECT "id" FROM "sales"."order's" WHERE ctid >= CAST('(0,0)' AS tid) AND ctid < CAST('(50,0)' AS tid);

-- last pages
SELECT "id" FROM "sales"."order's" WHERE ctid >= CAST('(50,0)' AS tid);

-- quantiles
SELECT CAST(PERCENTILE_DISC(CAST('{0.250000,0.500000,0.750000}' AS double precision[])) WITHIN GROUP (ORDER BY "the cursor" COLLATE "C") AS text[]) FROM "sales"."order's" WHERE NOT "the cursor" IS NULL;

-- the thousandth value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE NOT "the cursor" IS NULL ORDER BY "the cursor" COLLATE "C" ASC LIMIT 1 OFFSET 999;

-- rowids
SELECT "id" FROM "sales"."order's" WHERE rowid >= 5 AND rowid < 9;

-- span of rowids
SELECT MIN(rowid), MAX(rowid) FROM "sales"."order's" WHERE NOT "the cursor" IS NULL;

