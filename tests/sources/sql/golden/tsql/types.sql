-- bigint as int64
SELECT [x] FROM [sales].[orders];

-- bigint as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- decimal as decimal(38,10)
SELECT [x] FROM [sales].[orders];

-- decimal as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- date as date
SELECT CONVERT(nvarchar(10), [x], 23) AS [x] FROM [sales].[orders];

-- date as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- datetime as timestamp
SELECT CONVERT(nvarchar(26), [x], 126) AS [x] FROM [sales].[orders];

-- datetime as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- smalldatetime as timestamp
SELECT CONVERT(nvarchar(26), [x], 126) AS [x] FROM [sales].[orders];

-- smalldatetime as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- datetime2 as timestamp
SELECT CONVERT(nvarchar(26), [x], 126) AS [x] FROM [sales].[orders];

-- datetime2 as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- datetimeoffset as timestamptz
SELECT CONVERT(nvarchar(26), CAST(SWITCHOFFSET([x], '+00:00') AS datetime2(6)), 126) AS [x] FROM [sales].[orders];

-- datetimeoffset as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- nvarchar as string
SELECT [x] FROM [sales].[orders];

-- nvarchar as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- bit as bool
SELECT [x] FROM [sales].[orders];

-- bit as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- int identity as int32
SELECT [x] FROM [sales].[orders];

-- int identity as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- real as float32
SELECT [x] FROM [sales].[orders];

-- real as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 3) AS [x] FROM [sales].[orders];

-- float as float64
SELECT [x] FROM [sales].[orders];

-- float as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 3) AS [x] FROM [sales].[orders];

-- money as decimal(19,4)
SELECT [x] FROM [sales].[orders];

-- money as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 2) AS [x] FROM [sales].[orders];

-- time as string
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- time as string (as_text)
SELECT CONVERT(nvarchar(40), [x], 121) AS [x] FROM [sales].[orders];

-- uniqueidentifier as string
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- uniqueidentifier as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- xml as string
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- xml as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- timestamp as binary
SELECT [x] FROM [sales].[orders];

-- timestamp as string (as_text)
SELECT CONVERT(nvarchar(max), [x], 1) AS [x] FROM [sales].[orders];

-- ntext as string
SELECT [x] FROM [sales].[orders];

-- ntext as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- char as string
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

-- char as string (as_text)
SELECT CAST([x] AS nvarchar(max)) AS [x] FROM [sales].[orders];

