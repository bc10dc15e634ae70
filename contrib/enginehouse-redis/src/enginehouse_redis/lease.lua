-- Leases for one gateway. One call is one step for Redis, so no two gateways get the same.
--
-- KEYS[1]: the gateways that have asked lately. KEYS[2...]: one limit each.
-- ARGV[1]: the gateway. Then for each limit: its period, its amount, what is wanted, what comes back.
-- Returns the number of gateways, then for each limit: what is granted, the seconds to wait, what is left.

local SLOTS_S, GATEWAY_S, MINUTE_S, DAY_S = 3, 5, 60, 86400

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local gateway = ARGV[1]

local function text(number) return string.format('%.17g', number) end

-- Of a period that begins anew: its number, and the seconds until it ends. Months as in "chrono-Compatible Low-Level
-- Date Algorithms" (civil_from_days), with years that begin in March.
local function month_of(day)
  local era_day = (day + 719468) % 146097
  local year_of_era = math.floor((era_day - math.floor(era_day / 1460) + math.floor(era_day / 36524)
    - math.floor(era_day / 146096)) / 365)
  local day_of_year = era_day - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  return math.floor((day + 719468) / 146097) * 4800 + year_of_era * 12 + math.floor((5 * day_of_year + 2) / 153)
end

local function period(per)
  local day = math.floor(now / DAY_S)
  if per == 'day' then return day, (day + 1) * DAY_S - now end
  local month, last = month_of(day), day
  while month_of(last) == month do last = last + 1 end
  return month, last * DAY_S - now
end

local function counted(key, per, amount, want, back)
  local found = redis.call('HMGET', key, 'used', 'at', 'amount')
  local used, at, had = tonumber(found[1]) or 0, tonumber(found[2]) or now, tonumber(found[3]) or amount
  local number, ends = now, 0
  if per == 'minute' then
    used = math.max(0, used - (now - at) * had / MINUTE_S)
  else
    number, ends = period(per)
    if found[2] and at ~= number then used = 0 end
  end
  used = used - back
  local granted = math.max(0, math.min(want, amount - used))
  used = used + granted
  local wait = 0
  if granted < want then
    wait = ends
    if per == 'minute' then wait = math.max(0, math.min(want - granted, amount) - (amount - used)) * MINUTE_S / amount end
  end
  redis.call('HSET', key, 'used', text(used), 'at', text(number), 'amount', text(amount))
  local over = math.max(0, used - amount) * MINUTE_S / amount
  redis.call('EXPIRE', key, per == 'minute' and math.ceil(2 * MINUTE_S + over) or math.ceil(ends + MINUTE_S))
  return granted, wait, math.max(0, amount - used)
end

local function at_once(key, amount, want)
  local others, found = 0, redis.call('HGETALL', key)
  for i = 1, #found, 2 do
    local held, ends = string.match(found[i + 1], '^(%S+) (%S+)$')
    if tonumber(ends) <= now then
      redis.call('HDEL', key, found[i])
    elseif found[i] ~= gateway then
      others = others + tonumber(held)
    end
  end
  local granted = math.max(0, math.min(want, amount - others))
  if granted > 0 then
    redis.call('HSET', key, gateway, text(granted) .. ' ' .. text(now + SLOTS_S))
    redis.call('EXPIRE', key, 2 * SLOTS_S)
  else
    redis.call('HDEL', key, gateway)
  end
  return granted, 0, math.max(0, amount - others - granted)
end

redis.call('ZADD', KEYS[1], now, gateway)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - GATEWAY_S)
redis.call('EXPIRE', KEYS[1], 2 * GATEWAY_S)
local answer = { text(redis.call('ZCARD', KEYS[1])) }
for i = 2, #KEYS do
  local first = 2 + (i - 2) * 4
  local per, amount = ARGV[first], tonumber(ARGV[first + 1])
  local want, back = tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
  local granted, wait, left
  if per == 'at_once' then
    granted, wait, left = at_once(KEYS[i], amount, want)
  else
    granted, wait, left = counted(KEYS[i], per, amount, want, back)
  end
  answer[#answer + 1] = text(granted)
  answer[#answer + 1] = text(wait)
  answer[#answer + 1] = text(left)
end
return answer
