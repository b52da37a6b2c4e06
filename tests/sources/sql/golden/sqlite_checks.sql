-- integer 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= '' LIMIT 1;

-- integer 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE TYPEOF("the cursor") = 'real' LIMIT 1;

-- decimal 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= '' LIMIT 1;

-- date 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" < '' LIMIT 1;

-- date 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= x'' LIMIT 1;

-- date 2
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE NOT "the cursor" GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]' LIMIT 1;

-- timestamp 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" < '' LIMIT 1;

-- timestamp 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= x'' LIMIT 1;

-- timestamp 2
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE NOT SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]' OR LENGTH(REPLACE("the cursor", 'T', ' ')) > 26 LIMIT 1;

-- timestamptz 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" < '' LIMIT 1;

-- timestamptz 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= x'' LIMIT 1;

-- timestamptz 2
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE NOT SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]' OR LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) > 26 LIMIT 1;

-- string 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" < '' LIMIT 1;

-- string 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= x'' LIMIT 1;

-- uuid 0
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" < '' LIMIT 1;

-- uuid 1
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE "the cursor" >= x'' LIMIT 1;

-- uuid 2
SELECT TYPEOF("the cursor") FROM "sales"."order's" WHERE NOT "the cursor" GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]' LIMIT 1;

