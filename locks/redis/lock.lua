-- One lock name on one Redis server: who holds it, who waits, who is next.
--
-- The whole step runs on the server, on its clock, as one atomic script. Every
-- mode may be sent again with the same id, any number of times and late: the
-- second time changes nothing.
--
-- KEYS, all but the last with the name's hash tag:
--   1 S  hash  format, name, epoch, run (the server's run_id), quiet (nothing is
--              granted before this moment), ticket and fence (the last given)
--   2 H  zset  id of each holder      -> when its lease ends
--   3 Q  zset  place of each waiter   -> 0: ordered by the place's bytes
--   4 D  zset  place of each waiter   -> when it counts as dead
--   5 E  hash  id                     -> record
--   6 G  zset  id of who left or released -> when; kept for ten minutes, so that
--              a join that arrives late makes no entry of somebody who is gone
--   7    zset  every name in use -> until when it may be (not in a cluster)
-- A place is order .. ticket .. id; 16, 16 and 32 digits.
-- A record is "ttl weight max order ticket fence since ears slots text": the TTL
-- in ms; max 0 for none; order, the priority turned round, in hexadecimal; ears
-- 1 if the waiter has subscribed; slots as "0,3-5"; text is not looked at.
-- Moments are ms, ticket, fence and since us of the server's clock.
--
-- ARGV: 1 mode, 2 id, 3 quarantine in ms, 4 prefix of the channels, 5 name,
--   6 the epoch that the caller knows, 7 the record it knows, 8 "nowait" or "",
--   9 ids of the enclosing runs, outermost first, separated by commas.
-- Answers, each an array that begins with a word:
--   join     granted epoch record unsure | waiting epoch record place look quiet
--            unsure | busy quiet waiters holders... | gone
--            | nested id quiet waiters holders...
--   renew    held epoch record name | lost
--   release  released was-there epoch
--   list     list name quiet, then for each entry: holding or waiting, id, ms
--            that are left, record
--   any      format theirs | name theirs
local S, H, Q, D, E, G, INDEX = unpack(KEYS)
local mode, id, quarantine, channels = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local name, known, text, nowait, within = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == 'nowait', ARGV[9]

local FORMAT = '1'
local REMEMBER = 600000 -- ms that an id is remembered as gone
local SUSPECT = 500     -- ms left to a waiter that has stopped listening
local NEWCOMER = 3000   -- ms left to one that has not begun to listen yet
local CHECK = 450       -- ms after which the second makes sure of the first

-- Lua turns large numbers into 1.8e+15 unless told not to.
local function digits(n) return string.format('%016.0f', n) end

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local format, stored, epoch, run, quiet, ticket, fence =
  unpack(redis.call('HMGET', S, 'format', 'name', 'epoch', 'run', 'quiet', 'ticket', 'fence'))
if format and format ~= FORMAT then return {'format', format} end
if stored == '' then stored = nil end
if stored and name ~= '' and stored ~= name then return {'name', stored} end
quiet = tonumber(quiet) or 0
local unsure = 0 -- 1 if the server does not tell who it is

local function parse(text)
  local ttl, weight, max, order, ticket, fence, since, ears, slots, rest =
    text:match('^(%d+) (%d+) (%d+) (%x+) (%d+) (%d+) (%d+) (%d) (%S+) (.*)$')
  return {ttl = tonumber(ttl), weight = tonumber(weight), max = tonumber(max), order = order, ticket = ticket,
    fence = fence, since = since, ears = ears, slots = slots, text = rest}
end

local function write(r)
  return table.concat({r.ttl, r.weight, r.max, r.order, r.ticket, r.fence, r.since, r.ears, r.slots, r.text}, ' ')
end

-- The record of an id. One that was lost (evicted by the server for want of
-- memory) counts as exclusive, until its owner's next renewal brings it back.
local function record(id)
  local text = redis.call('HGET', E, id)
  return text and parse(text) or {ttl = 0, weight = 1, max = 1, slots = '-', ears = '0'}, text
end

local function place(r, id) return r.order .. r.ticket .. id end

local function first() return redis.call('ZRANGE', Q, 0, 0)[1] end

-- A server without memory refuses commands that may need some, but only as the
-- first write of a script. What exists already must stay alive: it begins with
-- a write that needs none.
local function exempt() redis.call('ZREM', H, '-') end

-- Every key lives on for nine to ten times the TTL after the latest sign of
-- life; so most scripts need not prolong it.
local function prolong(key, span)
  local rest = redis.call('PTTL', key)
  if rest ~= -2 and rest < span * 9 / 10 then redis.call('PEXPIRE', key, math.floor(span)) end
end

local function keep(ttl)
  for _, key in ipairs({S, H, Q, D, E}) do prolong(key, 10 * ttl) end
  if INDEX then
    local span = math.max(10 * ttl, 86400000)
    redis.call('ZADD', INDEX, 'GT', now + span, stored or name)
    prolong(INDEX, span)
  end
end

local changed = false -- somebody has gone, or come in: the next may have a turn

-- Drops whose time is over.
local function reap()
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', H, '-inf', now)) do
    redis.call('ZREM', H, dead)
    redis.call('HDEL', E, dead)
    changed = true
  end
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', D, '-inf', now)) do
    redis.call('ZREM', D, dead)
    redis.call('ZREM', Q, dead)
    redis.call('HDEL', E, dead:sub(33))
    changed = true
  end
end

-- The ranges of a list of slots, added to a table.
local function ranges(slots, into)
  for range in slots:gmatch('[%d-]*%d') do
    local from, to = range:match('^(%d+)-(%d+)$')
    into[#into + 1] = {tonumber(from or range), tonumber(to or range)}
  end
end

-- The holders' weights, the smallest max among them (0: none) and their slots.
local function holders()
  local sum, limit, taken = 0, 0, {}
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    local r = record(h)
    sum = sum + r.weight
    if r.max > 0 and (limit == 0 or r.max < limit) then limit = r.max end
    ranges(r.slots, taken)
  end
  table.sort(taken, function(a, b) return a[1] < b[1] end)
  return sum, limit, taken
end

-- The one rule of admission; who is first in the queue is asked elsewhere.
local function fits(r, sum, limit)
  if r.max > 0 and (limit == 0 or r.max < limit) then limit = r.max end
  return limit == 0 or sum + r.weight <= limit
end

-- The lowest numbers from 0 that nobody has, one for each unit of weight.
local function lowest(taken, units)
  local list, from = {}, 0
  taken[#taken + 1] = {math.huge, math.huge}
  for _, t in ipairs(taken) do
    local n = math.min(t[1] - from, units)
    if n > 0 then
      list[#list + 1] = n == 1 and string.format('%d', from) or string.format('%d-%d', from, from + n - 1)
      units = units - n
    end
    if units == 0 then break end
    from = math.max(from, t[2] + 1)
  end
  return table.concat(list, ',')
end

local function overlap(slots, taken)
  local mine = {}
  ranges(slots, mine)
  for _, m in ipairs(mine) do
    for _, t in ipairs(taken) do
      if m[1] <= t[2] and t[1] <= m[2] then return true end
    end
  end
  return false
end

-- Numbers that grow even if the data is lost, as long as the clock does not go
-- back.
local function after(last) return digits(math.max((tonumber(last) or 0) + 1, micros)) end

-- Finds out whether this is still the server, and the data, of before. An epoch
-- is a stretch of time in which nothing was forgotten: a holder that is missing
-- in its own epoch was taken out, in another one it may come back. After a
-- restart or a failover nothing new is granted until those who held a slot have
-- had the time to say so; also if nothing at all is stored and the server has
-- just been started. Data that vanished from a server that runs on was deleted
-- by somebody, or never there: nothing to wait for.
local function enter()
  local info = redis.pcall('INFO', 'server')
  local here, age = '', nil
  if type(info) == 'string' then
    here, age = info:match('run_id:(%x+)') or '', tonumber(info:match('uptime_in_seconds:(%d+)'))
  end
  if here == '' then unsure = 1 end
  if epoch and (here == '' or here == run) then return end
  if quarantine > 0 and (run and run ~= '' or not epoch and age and age * 1000 < quarantine + 1000) then
    quiet = now + quarantine
  end
  epoch = id .. '-' .. digits(micros)
  run = here
  redis.call('HSET', S, 'format', FORMAT, 'name', name, 'epoch', epoch, 'run', run, 'quiet', quiet)
  if INDEX then redis.call('ZREMRANGEBYSCORE', INDEX, '-inf', now) end
  stored = name
end

-- Tells the first waiter that it is its turn, and the next when to make sure
-- that the first has come. A publish that nobody receives lowers that waiter's
-- time; then the next is told to look when that is over. If the caller is the
-- next, its ms are the result.
local function wake()
  local place = first()
  if not place or quiet > now then return nil end
  local sum, limit = holders()
  if not fits(record(place:sub(33)), sum, limit) then return nil end
  local wait, told, i = 0, false, 0
  while place do
    local waiter = place:sub(33)
    if waiter == id then return wait end
    local heard = redis.pcall('PUBLISH', channels .. waiter, wait)
    if heard ~= 0 then -- or an error: then nobody can know
      if told then return nil end
      told, wait = true, math.max(wait, CHECK)
    elseif not told then
      local over = now + (record(waiter).ears == '1' and SUSPECT or NEWCOMER)
      local before = tonumber(redis.call('ZSCORE', D, place) or nil)
      if before and before <= over then over = before else redis.call('ZADD', D, over, place) end
      wait = math.max(wait, over + 1 - now)
    end
    i = i + 1
    place = redis.call('ZRANGE', Q, i, i)[1]
  end
end

local function forget(r)
  redis.call('ZREM', H, id)
  if r.order then
    redis.call('ZREM', Q, place(r, id))
    redis.call('ZREM', D, place(r, id))
  end
  redis.call('HDEL', E, id)
  redis.call('ZADD', G, now, id)
  redis.call('ZREMRANGEBYSCORE', G, '-inf', now - REMEMBER)
  redis.call('PEXPIRE', G, REMEMBER)
end

local function left(moment) return math.max(moment - now, 0) end

-- A refusal says who is in the way.
local function refuse(...)
  local answer = {...}
  answer[#answer + 1] = left(quiet)
  answer[#answer + 1] = redis.call('ZCARD', Q)
  local live = redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #live, 2 do
    local _, text = record(live[i])
    if text then
      for _, v in ipairs({'holding', live[i], left(live[i + 1]), text}) do answer[#answer + 1] = v end
    end
  end
  return answer
end

if mode == 'join' then
  local mine = parse(text)
  local old, oldText = record(id)
  local gone = redis.call('ZSCORE', G, id)
  if gone and not nowait and within == '' then return {'gone'} end
  if oldText or mine.ticket ~= digits(0) then exempt() end
  enter()
  reap()
  if redis.call('ZSCORE', H, id) then
    redis.call('ZADD', H, now + mine.ttl, id)
    keep(mine.ttl)
    return {'granted', epoch, oldText or write(mine), unsure}
  end
  if oldText then mine.ticket, mine.since = old.ticket, old.since end
  local new = mine.ticket == digits(0)
  if new then mine.ticket, mine.since = after(ticket), digits(micros) end
  local spot = place(mine, id)
  local ahead = redis.call('ZLEXCOUNT', Q, '-', '(' .. spot)
  local sum, limit, taken = holders()
  if not gone and ahead == 0 and quiet <= now and fits(mine, sum, limit) then
    mine.fence, mine.since, mine.slots = after(fence), digits(micros), lowest(taken, mine.weight)
    redis.call('HSET', S, 'fence', mine.fence, 'ticket', ticket and ticket > mine.ticket and ticket or mine.ticket)
    if not new then
      redis.call('ZREM', Q, spot)
      redis.call('ZREM', D, spot)
    end
    redis.call('ZADD', H, now + mine.ttl, id)
    redis.call('HSET', E, id, write(mine))
    wake()
    keep(mine.ttl)
    return {'granted', epoch, write(mine), unsure}
  end
  -- A run inside a holder of this very name would wait for itself.
  local inside
  for run in within:gmatch('%x+') do
    if redis.call('ZSCORE', H, run) then inside = run end
  end
  if inside or nowait then
    forget(mine)
    wake()
    if inside then return refuse('nested', inside) end
    return refuse('busy')
  end
  if gone then return {'gone'} end
  if not ticket or ticket < mine.ticket then redis.call('HSET', S, 'ticket', mine.ticket) end
  redis.call('HSET', E, id, write(mine))
  redis.call('ZADD', Q, 0, spot)
  redis.call('ZADD', D, now + mine.ttl, spot)
  local look = math.floor(mine.ttl / 3)
  local soon = (changed or ahead == 1) and wake()
  if soon then look = math.min(look, soon) end
  if mine.ears == '0' then look = math.min(look, 1000) end
  if ahead == 0 then
    local ends = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')[2]
    if ends then look = math.min(look, left(ends) + 1) end
    if quiet > now then look = math.min(look, left(quiet) + 1) end
  elseif ahead == 1 then
    local over = redis.call('ZSCORE', D, first())
    if over then look = math.min(look, left(over) + 1) end
  end
  keep(mine.ttl)
  return {'waiting', epoch, write(mine), ahead + 1, math.max(look, 1), left(quiet), unsure}
end

if mode == 'renew' then
  exempt()
  reap()
  if redis.call('ZSCORE', H, id) then
    -- A server that is another one than before goes through enter all the same.
    if stored then name = stored end
    enter()
    local mine, oldText = record(id)
    if text ~= '' and (not oldText or mine.ttl == 0) then
      mine, oldText = parse(text), text
      redis.call('HSET', E, id, text)
    end
    local ttl = mine.ttl > 0 and mine.ttl or 1000
    redis.call('ZADD', H, now + ttl, id)
    if changed then wake() end
    keep(ttl)
    return {'held', epoch, oldText or '', name}
  end
  if text == '' or redis.call('ZSCORE', G, id) then
    if changed then wake() end
    return {'lost'}
  end
  if stored then name = stored end
  enter()
  local mine = parse(text)
  local sum, limit, taken = holders()
  if epoch == known or not fits(mine, sum, limit) or overlap(mine.slots, taken) then
    if changed then wake() end
    return {'lost'}
  end
  -- The store has forgotten this holder, and its slots are still free.
  if not fence or fence < mine.fence then redis.call('HSET', S, 'fence', mine.fence) end
  redis.call('ZADD', H, now + mine.ttl, id)
  redis.call('HSET', E, id, text)
  if changed then wake() end
  keep(mine.ttl)
  return {'held', epoch, text, name}
end

if mode == 'release' then
  local was = redis.call('ZREM', H, id)
  local mine, oldText = record(id)
  if not oldText and text ~= '' then mine = parse(text) end
  if oldText then was = 1 end
  -- Missing because it was taken out, or because this is another server now?
  if was == 0 and epoch then
    if stored then name = stored end
    enter()
  end
  forget(mine)
  reap()
  wake()
  return {'released', was, epoch or ''}
end

-- list: it changes nothing.
local answer = {'list', stored or '', left(quiet)}
local function add(state, who, moment)
  local text = redis.call('HGET', E, who)
  if text and tonumber(moment) > now then
    for _, v in ipairs({state, who, left(moment), text}) do answer[#answer + 1] = v end
  end
end
local live = redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
for i = 1, #live, 2 do add('holding', live[i], live[i + 1]) end
for _, waiter in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
  add('waiting', waiter:sub(33), redis.call('ZSCORE', D, waiter) or now + 1)
end
return answer
