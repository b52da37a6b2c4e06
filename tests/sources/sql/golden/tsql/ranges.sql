-- bigint: rows
SELECT [the cursor] FROM [sales].[orders] WHERE [the cursor] > -1 AND [the cursor] <= 18446744073709551615;

-- bigint: greatest value
SELECT TOP 1 CAST([the cursor] AS nvarchar(max)) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > -1 AND [the cursor] <= 18446744073709551615 ORDER BY [the cursor] DESC;

-- bigint: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= -1;

-- decimal: rows
SELECT [the cursor] FROM [sales].[orders] WHERE [the cursor] > -0.10 AND [the cursor] <= 1000;

-- decimal: greatest value
SELECT TOP 1 CAST([the cursor] AS nvarchar(max)) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > -0.10 AND [the cursor] <= 1000 ORDER BY [the cursor] DESC;

-- decimal: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= -0.10;

-- date: rows
SELECT CONVERT(nvarchar(10), [the cursor], 23) AS [the cursor] FROM [sales].[orders] WHERE [the cursor] > CAST('0001-01-01' AS date) AND [the cursor] <= CAST('9999-12-31' AS date);

-- date: greatest value
SELECT TOP 1 CONVERT(nvarchar(10), [the cursor], 23) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > CAST('0001-01-01' AS date) AND [the cursor] <= CAST('9999-12-31' AS date) ORDER BY [the cursor] DESC;

-- date: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= CAST('0001-01-01' AS date);

-- datetime: rows
SELECT CONVERT(nvarchar(26), [the cursor], 126) AS [the cursor] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997' AS datetime);

-- datetime: greatest value
SELECT TOP 1 CONVERT(nvarchar(26), [the cursor], 126) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997' AS datetime) ORDER BY [the cursor] DESC;

-- datetime: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= CAST('2026-03-29T01:30:00.123456' AS datetime2(6));

-- smalldatetime: rows
SELECT CONVERT(nvarchar(26), [the cursor], 126) AS [the cursor] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997000' AS datetime2(6));

-- smalldatetime: greatest value
SELECT TOP 1 CONVERT(nvarchar(26), [the cursor], 126) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997000' AS datetime2(6)) ORDER BY [the cursor] DESC;

-- smalldatetime: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= CAST('2026-03-29T01:30:00.123456' AS datetime2(6));

-- datetime2: rows
SELECT CONVERT(nvarchar(26), [the cursor], 126) AS [the cursor] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997000' AS datetime2(6));

-- datetime2: greatest value
SELECT TOP 1 CONVERT(nvarchar(26), [the cursor], 126) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456' AS datetime2(6)) AND [the cursor] <= CAST('2026-03-29T01:30:00.997000' AS datetime2(6)) ORDER BY [the cursor] DESC;

-- datetime2: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= CAST('2026-03-29T01:30:00.123456' AS datetime2(6));

-- datetimeoffset: rows
SELECT CONVERT(nvarchar(26), CAST(SWITCHOFFSET([the cursor], '+00:00') AS datetime2(6)), 126) AS [the cursor] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456+00:00' AS datetimeoffset(6)) AND [the cursor] <= CAST('2026-03-28T23:30:00.123456+00:00' AS datetimeoffset(6));

-- datetimeoffset: greatest value
SELECT TOP 1 CONVERT(nvarchar(26), CAST(SWITCHOFFSET([the cursor], '+00:00') AS datetime2(6)), 126) AS [headwater_value] FROM [sales].[orders] WHERE [the cursor] > CAST('2026-03-29T01:30:00.123456+00:00' AS datetimeoffset(6)) AND [the cursor] <= CAST('2026-03-28T23:30:00.123456+00:00' AS datetimeoffset(6)) ORDER BY [the cursor] DESC;

-- datetimeoffset: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE [the cursor] >= CAST('2026-03-29T01:30:00.123456+00:00' AS datetimeoffset(6));

-- nvarchar: rows
SELECT [the cursor] FROM [sales].[orders] WHERE CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) > 0x AND CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) <= 0x4f27427269656e5c207ac3bc7269636820f09f9a80;

-- nvarchar: greatest value
SELECT TOP 1 CAST([the cursor] AS nvarchar(max)) AS [headwater_value] FROM [sales].[orders] WHERE CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) > 0x AND CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) <= 0x4f27427269656e5c207ac3bc7269636820f09f9a80 ORDER BY CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) DESC;

-- nvarchar: from a value on
SELECT COUNT_BIG(*) FROM [sales].[orders] WHERE CAST(CAST(CAST([the cursor] AS nvarchar(max)) COLLATE Latin1_General_100_BIN2_UTF8 AS varchar(max)) AS varbinary(max)) >= 0x;

