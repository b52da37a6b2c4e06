-- a first load
SELECT "id" FROM "sales"."order's" WHERE "the cursor" <= 200 AND ("the cursor" <= 150 OR NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[]))));

-- a first load above a value
SELECT "id" FROM "sales"."order's" WHERE ("the cursor" > 7 AND "the cursor" <= 200) AND NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[])));

-- bounded
SELECT "id" FROM "sales"."order's" WHERE (("the cursor" <= 200 AND ("the cursor" <= 180 OR NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[]))))) AND "the cursor" > 90) AND ("the cursor" > 100 OR (AGE(xmin) BETWEEN 0 AND AGE(CAST('800' AS xid)) OR xmin = ANY(CAST('{790}' AS xid[]))));

-- bounded, nothing open before
SELECT "id" FROM "sales"."order's" WHERE "the cursor" <= 200 AND "the cursor" > 100;

-- scan
SELECT "id" FROM "sales"."order's" WHERE ("the cursor" <= 200 AND NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[])))) AND ("the cursor" > 100 OR (AGE(xmin) BETWEEN 0 AND AGE(CAST('800' AS xid)) OR xmin = ANY(CAST('{790}' AS xid[]))));

-- planning
SELECT "id" FROM "sales"."order's" WHERE ((("the cursor" > 7 AND NOT "the cursor" IS NULL) AND ("the cursor" <= 180 OR NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[]))))) AND "the cursor" > 90) AND ("the cursor" > 100 OR (AGE(xmin) BETWEEN 0 AND AGE(CAST('800' AS xid)) OR xmin = ANY(CAST('{790}' AS xid[]))));

-- NULL cursors, first
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" IS NULL AND NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[])));

-- NULL cursors, later
SELECT COUNT(*) FROM "sales"."order's" WHERE ("the cursor" IS NULL AND NOT (AGE(xmin) BETWEEN 0 AND AGE(CAST('900' AS xid)) OR xmin = ANY(CAST('{890,895}' AS xid[])))) AND (AGE(xmin) BETWEEN 0 AND AGE(CAST('800' AS xid)) OR xmin = ANY(CAST('{790}' AS xid[])));

