-- describe
SELECT * FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS "rows_of_query" WHERE (
b <> 'x' -- or so
) LIMIT 0;

-- rows
SELECT "id" FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS "rows_of_query" WHERE "the cursor" > 5 AND (
b <> 'x' -- or so
);

-- flagged
SELECT "id", CASE WHEN "the cursor" > 5 THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_1" FROM (
SELECT a, '%;' AS b FROM t -- the end
) AS "rows_of_query" WHERE ("the cursor" > 5 OR NOT "the cursor" IS NULL) AND (
b <> 'x' -- or so
);

