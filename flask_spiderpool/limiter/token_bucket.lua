-- One host's token bucket: take up to n tokens, or block the host. bucket.py is the same, step for step.
--
-- Units: times are seconds with fractions by this server's TIME; a token is one request.
--
-- KEYS[1] <prefix>:limiter:birth        hash: run, at
--   Since when this life of the store has been asked. Made at first use and again when the server's
--   run_id has changed: a restart, a restored snapshot or a flush is a new birth.
-- KEYS[2] <prefix>:limiter:host:<key>   hash: tokens, at, until, full, run
--   Expires when it would be full. A bucket written in another life counts as missing, and a missing
--   bucket is not a full one: tokens = min(capacity, rate x age of the store).
--
-- ARGV    'acquire', rate (0: unlimited), capacity, n, now     ->  {granted, wait_s}
--         'block', for_s, memory_s, '', now                    ->  {0, '0'}
-- now is '' but in tests, which bring their own clock.

local EXPIRE_SLACK_S = 60
local TOLERANCE = 1e-6

local function text(number)
  return string.format('%.17g', number)
end

local function time_now()
  if ARGV[5] ~= '' then
    return tonumber(ARGV[5])
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end

-- Where INFO is forbidden a restored snapshot goes unnoticed; a flush and an empty restart do not.
local function this_run()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then
    return '-'
  end
  return string.match(info, 'run_id:(%w+)') or '-'
end

local now = time_now()
local run = this_run()

local born = redis.call('HMGET', KEYS[1], 'run', 'at')
local birth = tonumber(born[2] or now)
if born[1] ~= run or birth > now then
  birth = now
  redis.call('HSET', KEYS[1], 'run', run, 'at', text(now))
end

local known = redis.call('HMGET', KEYS[2], 'tokens', 'at', 'until', 'full', 'run')
local missing = known[5] ~= run or now >= tonumber(known[4])
local ends = 0
if not missing then
  ends = tonumber(known[3])
end

local function write(tokens, at, full)
  redis.call('HSET', KEYS[2], 'tokens', text(tokens), 'at', text(at), 'until', text(ends),
    'full', text(full), 'run', run)
  local expire_ms = math.min((full - now + EXPIRE_SLACK_S) * 1000, 1e12)
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', expire_ms))
end

if ARGV[1] == 'block' then
  local wanted = now + tonumber(ARGV[2])
  if wanted > ends then
    ends = wanted
    local full = ends + tonumber(ARGV[3])
    if not missing then
      full = math.max(full, tonumber(known[4]))
    end
    write(0, ends, full)
  end
  return {0, '0'}
end

local rate, capacity, n = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if rate == 0 then
  if ends > now then
    return {0, text(ends - now)}
  end
  return {math.max(0, n), '0'}
end

local tokens, at
if missing then
  tokens, at = math.min(capacity, rate * math.max(0, now - birth)), now
else
  at = tonumber(known[2])
  if at > now and at > ends then
    at = now -- the server's clock was set back
  end
  tokens = math.min(capacity, tonumber(known[1]) + rate * math.max(0, now - at))
  at = math.max(at, now)
end

local granted = 0
if ends <= now then
  granted = math.max(0, math.min(n, math.floor(tokens + TOLERANCE)))
end
tokens = tokens - granted
local wait_s = math.max(0, at - now) + math.max(0, (1 - tokens) / rate)
write(tokens, at, at + (capacity - tokens) / rate)
return {granted, text(wait_s)}
